"""Losses held against earlier ones, each by itself: LossNotDecreasing in SageMaker's meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from trainwarden.model import Finding, Json, Observation

MODES = ("EVAL", "TRAIN", "GLOBAL")  # SageMaker's order of preference
_MAX_LOSSES = 64  # followed at a time
_LARGEST = 1.7976931348623157e308  # JSON has no infinity
_CANDIDATES = 16  # saved steps remembered after a check


def compared(
    state: Json,
    obs: Observation,
    patterns: tuple[str, ...],
    wanted_mode: str | None,
    *,
    steps: int,
    percent: float,
) -> tuple[Json, Sequence[Finding]]:
    """Judge each loss of the mode that counts.

    Args:
        state: ``mode`` that counts so far; ``checks`` maps loss → what is kept of it.
        obs: Any observation.
        patterns: Of names of losses; empty for all.
        wanted_mode: The mode that counts; None for the best of those seen.
        steps: Between compared losses, in steps of the mode.
        percent: Least decrease, % of the older loss.
    """
    losses = obs.scalars.get("losses") or {}
    wanted = {
        name: value
        for name, value in losses.items()
        if not patterns or any(re.match(p, name) for p in patterns)
    }
    if not wanted:
        return state, ()
    mode = obs.mode.value
    best = mode if wanted_mode is None else wanted_mode
    if wanted_mode is None and state["mode"] in MODES:
        best = min(mode, state["mode"], key=MODES.index) if mode in MODES else state["mode"]
    if mode != best:
        return {**state, "mode": best}, ()
    checks = dict(state["checks"]) if state["mode"] == mode else {}
    found: list[Finding] = []
    for name in sorted(wanted, key=lambda name: (name not in checks, name)):
        if name in checks or len(checks) < _MAX_LOSSES:
            limits = (steps, percent)
            checks[name], finding = _check(checks.get(name), obs, name, wanted[name], limits)
            found += [finding] if finding else []
    return {**state, "mode": mode, "checks": checks}, found


def _check(
    kept: Json, obs: Observation, name: str, value: float, limits: tuple[int, float]
) -> tuple[Json, Finding | None]:
    """Hold a loss against that of the newest saved step at least so many steps older.

    ``kept`` holds [step, loss] of the first saved steps from the last check on: the next check
    compares with one of these. None stands for NaN.
    """
    (steps, percent), at = limits, obs.mode_step
    bounded = max(-_LARGEST, min(_LARGEST, value))
    here = [at, None if math.isnan(value) else bounded]
    if not kept or at < kept[0][0]:  # the first one, or a run that was resumed earlier
        return [here], None
    if at - kept[0][0] < steps:
        return (kept if len(kept) >= _CANDIDATES else [*kept, here]), None
    older = [v for step, v in kept if at - step >= steps][-1]
    older = math.nan if older is None else older
    limit = older - abs(older) * percent / 100
    if value < limit or (value == limit and percent):
        return [here], None
    message = f"the {name} is {value:.4g} and was {older:.4g} {steps} or more steps ago"
    shown = [
        max(-_LARGEST, min(_LARGEST, v)) if not math.isnan(v) else _LARGEST for v in (value, limit)
    ]
    return [here], Finding(obs.step, name, shown[0], shown[1], message, obs.step)
