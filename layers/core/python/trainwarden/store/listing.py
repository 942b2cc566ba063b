"""Which objects of a job there are, and which folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from trainwarden.errors import KeyGrammarError
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.keys import StepsKey, parse, steps_prefix

_PASSED = 64  # keys of one folder that are read before asking for what comes after it


def folders(objects: ObjectStore, prefix: str) -> Iterator[str]:
    """Yield the names of the folders directly below ``prefix``, in the order of their keys.

    Args:
        objects: Where they lie.
        prefix: Empty, or ends with a slash.

    Raises:
        RetryableError: the store does not answer.
    """
    after, last, passed = "", "", 0
    while True:
        for key in objects.keys(prefix, after=after):
            name, slash, _ = key[len(prefix) :].partition("/")
            if slash and name != last:
                last, passed = name, 0
                yield name
            passed += 1
            if passed == _PASSED and slash:  # a long run: a new request costs less than its keys
                after, passed = f"{prefix}{name}/\U0010ffff", 0
                break
        else:
            return


def steps_keys(
    objects: ObjectStore, job: str, worker: int | None = None, *, after: str = ""
) -> Iterator[StepsKey]:
    """Yield the keys of a job's steps objects, ascending; what somebody else put there is not one.

    Args:
        objects: Where they lie.
        job: The job's name.
        worker: Only of this rank; None for all.
        after: Only keys beyond this one.

    Raises:
        RetryableError: the store does not answer.
    """
    for text in objects.keys(steps_prefix(job, worker), after=after):
        with suppress(KeyGrammarError):
            key = parse(text)
            if isinstance(key, StepsKey):
                yield key
