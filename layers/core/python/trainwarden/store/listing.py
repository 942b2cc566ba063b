"""Which objects of a job there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from trainwarden.errors import KeyGrammarError
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.keys import StepsKey, parse, steps_prefix


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
