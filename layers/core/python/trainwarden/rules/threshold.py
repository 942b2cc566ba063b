"""CUS001 Threshold: a limit of your own on any statistic, written as configuration.

**Why it hurts.** You know what must not happen in your model: say it without writing code. A job
may carry several, each under a ``key`` of its own.

**How it is computed.** At each saved step the statistic (unit: that of ``docs/statistics.md``) of
the tensors or scalars of ``collection`` whose name matches one of ``tensors`` is brought to one
number by ``aggregate``, averaged over the last ``window`` saved steps, and, unless ``relative_to``
is none, divided by a reference: the first such number, the smallest so far (``best``) or the median
of the last 32. Zeros are no reference, so the first, the smallest and the median are those of the
numbers other than zero. It fires when the result is above ``above`` or below ``below`` at
``patience`` saved steps in a row; one of the two has to be given. With ``share`` it fires when that
share of the tensors is beyond the limit, each by itself, and ``window`` and ``relative_to`` do not
apply.

**Remedy.** Whatever your limit stands for.

**False alarms to expect.** Those of the limit you chose; try it on recorded runs with
``trainwarden replay``.

**Missing data.** Values that are not finite are left out, since NUM001 tells them; nothing that
matches means nothing inspected. A step whose number is beyond the range of a float64, or that has
no reference yet, is not judged: it neither adds to a row of bad steps nor ends it.

**Source.** Yours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from trainwarden.errors import ConfigError
from trainwarden.model import (
    Finding,
    FloatArray,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.stats.derived import VALUE, column, statistic

HISTORY = 32  # saved steps whose median is the run's own history
_AGGREGATES: Mapping[str, Callable[[FloatArray], float]] = MappingProxyType(
    {
        "max": lambda values: float(values.max()),
        "min": lambda values: float(values.min()),
        "mean": lambda values: float(values.mean()),
        "median": lambda values: float(np.median(values)),
        "sum": lambda values: float(values.sum()),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold(CheckedRule[Json]):
    """Fire when a statistic of your choice leaves the limits that you set."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "CUS001",
        "Threshold",
        Severity.WARNING,
        Tier.EVIDENCE,
        (),
        ("Look at what the limit stands for.",),
        "capture the collection that the rule names, and check its name and the tensors' names",
        default=False,
    )

    collection: str = param("losses", "Collection of tensors or scalars.")
    statistic: str = param(VALUE, "Name of a statistic; value for scalars.")
    tensors: tuple[str, ...] = param(
        (), "Only names that one of these matches from their start.", pattern=True
    )
    above: float | None = param(None, "Largest value that is allowed.")
    below: float | None = param(None, "Smallest value that is allowed.")
    aggregate: str = param(
        "max", "How the tensors become one number.", choices=tuple(sorted(_AGGREGATES))
    )
    share: float | None = param(
        None, "Share of the tensors that must be beyond.", bounds=Bounds(gt=0, le=1)
    )
    window: int = param(
        1, "Saved steps that are averaged.", "saved steps", bounds=Bounds(ge=1, le=1000)
    )
    patience: int = param(1, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    relative_to: str = param(
        "none",
        "What the number is divided by.",
        choices=("none", "first", "best", "median"),
    )

    def __post_init__(self) -> None:
        super(Threshold, self).__post_init__()
        if self.statistic != VALUE:
            statistic(self.statistic)
        if self.above is not None and self.below is not None and not self.below < self.above:
            raise ConfigError("below smaller than above", f"{self.below:g} and {self.above:g}")
        if self.above is None and self.below is None:
            raise ConfigError("a limit in above, below or both", "neither", "give above=NUMBER")

    def start(self) -> Json:
        """Nothing has been seen."""
        return {"last": [], "first": None, "best": None, "past": [], "count": 0, "since": -1,
                "fired": False}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Say whether anything matches."""
        return bool(self._seen(obs)[0])

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Hold the number against the limits; one finding for each streak."""
        names, values = self._seen(obs)
        if not names:
            return state, ()
        if self.share is not None:
            beyond = [i for i, value in enumerate(values.tolist()) if self._beyond(value)]
            ill, number = len(beyond) >= self.share * len(names), len(beyond) / len(names)
            worst = names[beyond[0]] if beyond else ""
        else:
            with np.errstate(over="ignore"):
                value = _AGGREGATES[self.aggregate](values)
            state, number = self._followed(state, value)
            if not math.isfinite(number):
                return state, ()
            ill, worst = self._beyond(number), self._worst(names, values)
        if not ill:
            return {**state, "count": 0, "since": -1, "fired": False}, ()
        since = obs.step if state["count"] == 0 else state["since"]
        state = {**state, "count": state["count"] + 1, "since": since}
        if state["fired"] or state["count"] < self.patience:
            return state, ()
        return {**state, "fired": True}, [self._finding(obs, number, worst, state)]

    def _seen(self, obs: Observation) -> tuple[list[str], FloatArray]:
        """Names and finite values of what matches."""
        found = column(obs, Need(self.collection, self.statistic))
        kept = [
            i
            for i, name in enumerate(found.names)
            if math.isfinite(found.values[i])
            and (not self.tensors or any(re.match(p, name) for p in self.tensors))
        ]
        return [found.names[i] for i in kept], found.values[kept]

    def _followed(self, state: Json, value: float) -> tuple[Json, float]:
        """Average, and divide by what it is relative to; NaN if there is nothing to divide by."""
        if not math.isfinite(value):
            return state, math.nan
        last = [*state["last"], value][-self.window :]
        number = sum(one / len(last) for one in last)
        state = {**state, "last": last}
        if self.relative_to == "none":
            return state, number
        base, state = self._reference(state, number)
        return state, number / base if base else math.nan

    def _reference(self, state: Json, number: float) -> tuple[float, Json]:
        """Return what a number is divided by, 0 if there is nothing yet, and what is kept of it."""
        first, best, past = state["first"], state["best"], state["past"]
        base = median(past) if past else number  # of what came before
        if number:
            first = number if first is None else first
            best = number if best is None else min(best, number)
            past = [*past, number][-HISTORY:] if self.relative_to == "median" else []
        base = {"first": first, "best": best}.get(self.relative_to, base) or 0.0
        return base, {**state, "first": first, "best": best, "past": past}

    def _beyond(self, value: float) -> bool:
        above = self.above is not None and value > self.above
        return above or (self.below is not None and value < self.below)

    def _worst(self, names: Sequence[str], values: FloatArray) -> str:
        if self.aggregate in {"max", "min"}:
            return names[int(values.argmax() if self.aggregate == "max" else values.argmin())]
        return names[0] if len(names) == 1 else ""

    def _finding(self, obs: Observation, number: float, worst: str, state: Json) -> Finding:
        high = self.above is not None and (self.share is not None or number > self.above)
        limit = float(self.above if high else self.below or 0.0)  # type: ignore[arg-type]
        side = "above" if high else "below"
        what = f"{self.statistic} of {self.collection}"
        if self.share is not None:
            text = f"{what} is {side} {limit:g} in {number:.0%} of the tensors"
        else:
            relative = "" if self.relative_to == "none" else f" of its {self.relative_to} value"
            text = f"{self.aggregate} {what} is {number:.4g}{relative}, {side} {limit:g}"
        message = f"{text}, at {state['count']} saved steps in a row since step {state['since']}"
        return Finding(obs.step, worst, number, limit, message, state["since"])
