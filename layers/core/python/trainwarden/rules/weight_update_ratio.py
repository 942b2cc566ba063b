"""UPD002 WeightUpdateRatio: updates too large or too small for the weights they change.

**Why it hurts.** Updates as large as the weights forget what was learned; updates far below their
resolution teach nothing.

**How it is computed.** For each weight between two saved training steps, or of any mode
where a run tells none apart (unit: 1):

    ratio = |w - previous| ÷ (|previous| + epsilon), L2 norms

It fires for a tensor whose ratio is above ``large_threshold`` or below ``small_threshold``, once
until the tensor is back between. Which of both is in the evidence as ``kind``: ``large`` or
``small``. With ``num_steps`` given, saved steps closer than that to the one before are passed over.

The profile ``sagemaker`` has the same meaning and limits. The default profile leaves this rule out:
LearningRateTooHigh and LearningRateTooLow judge the same ratio together with the loss.

**Remedy.** Large: lower the learning rate. Small: raise it, or look for vanishing gradients.

**False alarms to expect.** Weights that start at 0 (large); frozen layers, converged runs and the
end of a schedule (small). Nothing is gated here: limits are the user's.

**Missing data.** Tensors without a previous value are not judged, NaN neither.

**Source.** SageMaker Debugger's WeightUpdateRatio; its norm is not documented, L2 is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    TRAIN,
    Finding,
    Json,
    Mode,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.stats.catalog import INDEX

RATIO = Need("weights", "update_ratio")
_SQUARE, _BEFORE, _COMPARED = INDEX["u_sum2"], INDEX["u_w2"], INDEX["u_n"]
_MAX_TENSORS = 500  # remembered at a time; the state has to fit the job's record
_REMEDIES = {
    "large": ("Lower the learning rate by a factor of 10, or warm it up.",),
    "small": ("Raise the learning rate; look at the gradients of this layer.",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdateRatio(CheckedRule[Json]):
    """Fire when a weight's update leaves its two limits."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "UPD002",
        "WeightUpdateRatio",
        Severity.WARNING,
        Tier.CRITICAL,
        (RATIO,),
        tuple(text for one in _REMEDIES.values() for text in one),
        "capture the collection weights; trainwarden.watch() does so by default",
        default=False,
        sagemaker={"large_threshold": 10.0, "small_threshold": 1e-8, "epsilon": 1e-9},
    )

    large_threshold: float = param(10.0, "Ratio that is too large.", bounds=Bounds(gt=0))
    small_threshold: float = param(1e-8, "Ratio that is too small.", bounds=Bounds(ge=0))
    epsilon: float = param(
        1e-9, "Added to the norm, so that none is 0.", "weight units", bounds=Bounds(gt=0)
    )
    num_steps: int | None = param(None, "Least steps between the two.", "steps",
                                  bounds=Bounds(ge=1))  # fmt: skip

    def start(self) -> Json:
        """No tensor is beyond its limits."""
        return {"at": -1, "ill": {}, "modes": False}

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Tell of each tensor that has left its limits."""
        if obs.mode is TRAIN and not state["modes"]:
            state = {**state, "modes": True}
        if obs.mode is not TRAIN and (state["modes"] or obs.mode is not Mode.GLOBAL):
            return state, ()
        near = state["at"] >= 0 and obs.step - state["at"] < (self.num_steps or 0)
        rows = obs.captured("weights")
        if not rows.size:
            return state, ()
        state = {**state, "at": obs.step}
        if near:
            return state, ()
        stats = obs.stats.take(rows, axis=0)
        with np.errstate(all="ignore"):
            ratios = np.sqrt(stats[:, _SQUARE]) / (np.sqrt(stats[:, _BEFORE]) + self.epsilon)
        ratios[~(stats[:, _COMPARED] > 0)] = np.nan  # nothing finite to compare
        large, small = ratios > self.large_threshold, ratios < self.small_threshold
        if not (large.any() or small.any() or state["ill"]):
            return state, ()
        ill: dict[str, Json] = {}
        found: list[Finding] = []
        for i in np.flatnonzero(large | small)[:_MAX_TENSORS].tolist():
            key, kind = str(int(rows[i])), "large" if large[i] else "small"
            ill[key] = kind
            if state["ill"].get(key) != kind:
                name = obs.layout.names[int(rows[i])]
                found.append(self._finding(obs, name, float(min(ratios[i], 1e300)), kind))
        found.sort(key=lambda f: -f.value if f.evidence["kind"] == "large" else f.value)
        return {**state, "ill": ill}, found

    def _finding(self, obs: Observation, name: str, ratio: float, kind: str) -> Finding:
        limit = self.large_threshold if kind == "large" else self.small_threshold
        word = "above" if kind == "large" else "below"
        message = f"{name} has changed by {ratio:.2g} times its size, {word} {limit:g}"
        evidence = {"kind": kind}
        return Finding(obs.step, name, ratio, limit, message, obs.step, evidence, _REMEDIES[kind])
