"""Which steps are saved: every step at first, when most faults show, then one in ``interval``."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """Saves steps ``start <= step < end``: the first ``dense`` of them and one in ``interval``.

    Attributes:
        interval: Steps from one saved step to the next, at least 1.
        dense: Steps saved without gaps at the beginning, at least 0.
        start: First step that may be saved.
        end: First step that is not saved any more; None for no end.
    """

    interval: int = 10
    dense: int = 10
    start: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a schedule."""
        for name, value, least in (
            ("save_interval", self.interval, 1),
            ("dense_steps", self.dense, 0),
            ("start_step", self.start, 0),
            ("end_step", 0 if self.end is None else self.end, 0),
        ):
            if type(value) is not int or value < least:
                raise ConfigError(f"{name} to be a whole number of at least {least}", repr(value))

    def saves(self, step: int) -> bool:
        """Say whether ``step`` is saved."""
        since = step - self.start
        return (since < self.dense or since % self.interval == 0) and self.covers(step)

    def covers(self, step: int) -> bool:
        """Say whether ``step`` may be saved if there is a reason to."""
        return step >= self.start and (self.end is None or step < self.end)
