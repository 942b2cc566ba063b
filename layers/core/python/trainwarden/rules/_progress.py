"""Is the run learning? The gate before the alarms: what looks ill in a run that learns is not.

State is JSON: the losses a run started with and those it is at now, a few saved steps each.
"""

from __future__ import annotations

import math
import re
from statistics import median

from trainwarden.model import TRAIN, Json, Observation

KEPT = 5  # saved steps in each median
_MOST_STEPS = 1e9
START_STEPS = 10  # saved steps later than this after the first no longer belong to the start


def main_loss(obs: Observation, patterns: tuple[str, ...] = ()) -> tuple[str, float] | None:
    """Return name and value of the loss to judge: ``loss``, else the first by name.

    None if there is no loss that matches, or if it is not finite (NUM001's business).
    """
    if patterns:
        return _main_loss(obs, patterns)
    if "main loss" not in obs.memo:  # most rules ask for it
        obs.memo["main loss"] = _main_loss(obs, ())
    found: tuple[str, float] | None = obs.memo["main loss"]
    return found


def _main_loss(obs: Observation, patterns: tuple[str, ...]) -> tuple[str, float] | None:
    losses = obs.scalars.get("losses")
    if not losses:
        return None
    names = [n for n in losses if not patterns or any(re.match(p, n) for p in patterns)]
    name = "loss" if "loss" in names else min(names, default="")
    value = losses.get(name, math.nan)
    return (name, value) if math.isfinite(value) else None


def window_mean(obs: Observation) -> tuple[int, float]:
    """Return of how many steps since the last saved one the mean loss is known, and that mean.

    (0, NaN) if it is not, or if one of these losses was not finite.
    """
    known: tuple[int, float] | None = obs.memo.get("window mean")
    if known is None:
        known = obs.memo["window mean"] = _window_mean(obs)
    return known


def _window_mean(obs: Observation) -> tuple[int, float]:
    facts = obs.scalars.get("window", {})
    steps, mean = facts.get("steps", 0.0), facts.get("loss_mean", math.nan)
    if not 1 <= steps < _MOST_STEPS or not math.isfinite(mean) or facts.get("nonfinite_losses"):
        return 0, math.nan
    return int(steps), mean


def window_peak(obs: Observation, value: float) -> list[float]:
    """[step, loss] of the largest loss since the last saved step."""
    facts = obs.scalars.get("window", {})
    step, largest = facts.get("loss_max_step", math.nan), facts.get("loss_max", math.nan)
    if value < largest < math.inf and 0 <= step <= obs.step:
        return [float(step), largest]
    return [float(obs.step), value]


def begin() -> Json:
    """No loss has been seen yet."""
    return {"at": -1, "first": [], "last": []}


def follow(state: Json, obs: Observation) -> Json:
    """Take one training step's loss into account; a missing or non-finite loss changes nothing."""
    done: list[tuple[Json, Json]] = obs.memo.get("follow") or []
    for before, after in done:  # most rules come with the very same losses
        if before is state or before == state:
            return after
    loss = main_loss(obs) if obs.mode is TRAIN else None
    if loss is None:
        return state
    at = obs.step if state["at"] < 0 else state["at"]
    first = state["first"]
    if not first or (len(first) < KEPT and obs.step - at < START_STEPS):
        first = [*first, loss[1]]
    after = {"at": at, "first": first, "last": [*state["last"][1 - KEPT :], loss[1]]}
    obs.memo["follow"] = [*done, (state, after)]
    return after


def fall(state: Json) -> float:
    """Return the share of the starting loss that is gone: 0 not learning, 1 all of it.

    NaN without losses, and where the start is not above zero, since a surrogate loss that may
    have either sign says nothing about learning.
    """
    if not state["first"] or (start := median(state["first"])) <= 0:
        return math.nan
    recent = state["last"][-max(1, len(state["last"]) // 2) :]  # a run that falls fast is below
    return float(1.0 - median(recent) / start)
