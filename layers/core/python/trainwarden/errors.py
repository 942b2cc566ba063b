"""Every exception of trainwarden, split by what the caller does next.

TrainwardenError
├── BadInputError               what came in is wrong: fix it, a retry is useless
│   ├── ConfigError             a rule name, key, value or unit nobody knows
│   ├── TooLargeError           more than the store takes in one commit
│   ├── MalformedObjectError    bytes that are no valid ``.tw`` object
│   └── KeyGrammarError         an object key or job name outside the grammar
├── NotFoundError               the job, run or rule asked for does not exist
└── RetryableError              the same call may succeed later
    └── ConflictError           another writer committed first
"""

from __future__ import annotations


class TrainwardenError(Exception):
    """Base of everything trainwarden raises on purpose."""


class BadInputError(TrainwardenError):
    """What came in is wrong; says what was expected, what was found and what to do.

    Attributes:
        expected: What would have been right, as a noun phrase.
        found: What was there instead.
        remedy: What the reader should do now; may be empty.
    """

    def __init__(self, expected: str, found: str, remedy: str = "") -> None:
        self.expected, self.found, self.remedy = expected, found, remedy
        super().__init__(f"expected {expected}, found {found}" + (f"; {remedy}" if remedy else ""))


class ConfigError(BadInputError):
    """A rule name, key, value or unit that nobody knows."""


class TooLargeError(BadInputError):
    """A record that the store cannot take; a smaller one may be committed."""


class MalformedObjectError(BadInputError):
    """Bytes that are no valid ``.tw`` object of a wire version this reader knows."""


class KeyGrammarError(BadInputError):
    """An object key or job name outside the grammar of ``wire.keys``."""


class NotFoundError(TrainwardenError):
    """The job, run or rule asked for does not exist."""


class RetryableError(TrainwardenError):
    """The same call may succeed later; a queue message should go back."""


class ConflictError(RetryableError):
    """Another writer committed first; read again and retry."""
