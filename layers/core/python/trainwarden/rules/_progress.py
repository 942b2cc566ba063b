"""Is the run learning? The gate before the alarms: what looks ill in a run that learns is not.

State is ``[first step, first losses…, last losses…]`` as JSON: the level a run started from and
the level it is at now, both medians of a few saved steps, so that one batch decides nothing.
"""

from __future__ import annotations

import math
from statistics import median

from trainwarden.model import Json, Mode, Observation

KEPT = 5  # saved steps in each median
START_STEPS = 10  # saved steps later than this after the first no longer belong to the start


def training_loss(obs: Observation) -> float | None:
    """Return the training loss of this step, None if it was not recorded."""
    losses = obs.scalars.get("losses") if obs.mode is Mode.TRAIN else None
    if not losses:
        return None
    return losses["loss"] if "loss" in losses else losses[min(losses)]


def begin() -> Json:
    """No loss has been seen yet."""
    return {"at": -1, "first": [], "last": []}


def follow(state: Json, obs: Observation) -> Json:
    """Take one step's loss into account; a missing or non-finite loss changes nothing."""
    loss = training_loss(obs)
    if loss is None or not math.isfinite(loss):
        return state
    at = obs.step if state["at"] < 0 else state["at"]
    first = state["first"]
    if not first or (len(first) < KEPT and obs.step - at < START_STEPS):
        first = [*first, loss]
    return {"at": at, "first": first, "last": [*state["last"][1 - KEPT :], loss]}


def fall(state: Json) -> float:
    """Return the share of the starting loss that is gone: 0 not learning, 1 all of it.

    NaN without losses, and where the start is not above zero, since a surrogate loss that may
    have either sign says nothing about learning.
    """
    if not state["first"] or (start := median(state["first"])) <= 0:
        return math.nan
    return float(1.0 - median(state["last"]) / start)
