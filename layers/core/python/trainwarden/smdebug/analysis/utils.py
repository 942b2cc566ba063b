"""``smdebug.analysis.utils``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from trainwarden.errors import BadInputError
from trainwarden.trial.trial import Trial

_TRUE, _FALSE = frozenset({"true", "1", "yes", "t", "y"}), frozenset({"false", "0", "no", "f", "n"})


@contextmanager
def no_refresh(trials: Trial | Iterable[Trial]) -> Iterator[None]:
    """Do not look for new steps inside the block."""
    with _refreshing(trials, wanted=False):
        yield


@contextmanager
def refresh(trials: Trial | Iterable[Trial]) -> Iterator[None]:
    """Look for new steps at every question inside the block."""
    with _refreshing(trials, wanted=True):
        yield


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], *, wanted: bool) -> Iterator[None]:
    chosen = [trials] if isinstance(trials, Trial) else list(trials)
    before = [trial.dynamic_refresh for trial in chosen]
    for trial in chosen:
        trial.dynamic_refresh = wanted
    try:
        yield
    finally:
        for trial, setting in zip(chosen, before, strict=True):
            trial.dynamic_refresh = setting


def parse_list_from_str(arg: str | Iterable[str] | None, delimiter: str = ",") -> list[str]:
    """Return what a parameter lists, without spaces and empty words."""
    if arg is None:
        return []
    if isinstance(arg, str):
        return [word.strip() for word in arg.split(delimiter) if word.strip()]
    return list(arg)


def parse_bool(arg: str | bool | None, default: bool = False) -> bool:  # noqa: FBT001, FBT002 - same
    """Return what a parameter says.

    Raises:
        BadInputError: neither yes nor no.
    """
    if arg is None:
        return default
    word = str(arg).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise BadInputError("true or false", repr(arg))
