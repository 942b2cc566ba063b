"""Which steps are saved: every step at first, when most faults show, then one in ``interval``."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.errors import ConfigError
from trainwarden.model import Json

TENTH = 10  # of a run whose length is known, the first and the last are saved ten times as often


@dataclass(frozen=True)
class Schedule:
    """Saves ``steps``, the first ``dense`` steps, and then each that ``interval`` divides.

    Attributes:
        interval: Steps from one saved step to the next, at least 1.
        dense: Steps saved without gaps at the beginning, at least 0.
        start: Number of the run's first step.
        first: First step that may be saved.
        end: First step that is not saved any more; None for no end.
        steps: Saved in any case, also outside of ``first`` and ``end``.
        exact: Of the saved steps those that it divides are measured whole, the others from
            samples; so are all that are saved in any case.
        total: Steps of the whole run, if they are known: its first and its last tenth are saved
            ten times as often as what lies between.
    """

    interval: int = 10
    dense: int = 10
    start: int = 0
    first: int = 0
    end: int | None = None
    steps: frozenset[int] = frozenset()
    total: int | None = None
    exact: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be a schedule."""
        for name, value, least in (
            ("save_interval", self.interval, 1),
            ("dense_steps", self.dense, 0),
            ("start_step", self.start, 0),
            ("the first step that is saved", self.first, 0),
            ("end_step", 0 if self.end is None else self.end, 0),
            ("exact_interval", self.exact, 1),
            ("max_steps", 1 if self.total is None else self.total, 1),
            *(("a step of save_steps", step, 0) for step in self.steps),
        ):
            if type(value) is not int or value < least:
                raise ConfigError(f"{name} to be a whole number of at least {least}", repr(value))

    def saves(self, step: int) -> bool:
        """Say whether ``step`` is saved."""
        if step % self._interval(step) == 0 or step < max(self.start, self.first) + self.dense:
            return self.covers(step)
        return step in self.steps

    def demands(self, step: int) -> bool:
        """Say whether ``step`` is saved whatever it costs."""
        early = step < max(self.start, self.first) + self.dense
        return step in self.steps or (early and self.covers(step))

    def measures(self, step: int) -> bool:
        """Say whether a saved ``step`` is measured whole."""
        return step % self.exact == 0 or self.demands(step)

    def covers(self, step: int) -> bool:
        """Say whether ``step`` may be saved if there is a reason to."""
        if step in self.steps:
            return True
        return step >= max(self.start, self.first) and (self.end is None or step < self.end)

    def number(self, step: int) -> int:
        """Return how many of its intervals lie before ``step``: the same in every process."""
        return step // self._interval(step)

    def _interval(self, step: int) -> int:
        if self.total is None:
            return self.interval
        tenth = self.total // TENTH
        ends = step < tenth or step >= self.total - tenth
        return max(1, self.interval // TENTH) if ends else self.interval

    def to_json(self) -> dict[str, Json]:
        """Describe it in the manifest, in the words of ``watch``."""
        return {
            "save_interval": self.interval,
            "dense_steps": self.dense,
            "start_step": self.start,
            "first_saved_step": self.first,
            "end_step": self.end,
            "save_steps": sorted(self.steps),
            "max_steps": self.total,
            "exact_interval": self.exact,
        }
