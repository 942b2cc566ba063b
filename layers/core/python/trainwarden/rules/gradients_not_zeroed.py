"""LOP001 GradientsNotZeroed: gradients of earlier steps are still there when new ones are added.

**Why it hurts.** backward() adds to what .grad holds. Without optimizer.zero_grad() each step
follows the sum of all gradients so far: the updates grow with every step until the loss runs away,
or the run creeps along in a direction that was right long ago.

**How it is computed.** The hook looks at the first backward pass after each optimizer step. A
gradient is *carried* (unit: 1 yes, 0 no) if the one which that step used was still there, neither
None nor zero. Of several backward passes for one step (gradient accumulation) only the first is
looked at. The rule fires once gradients were carried at ``patience`` saved steps in a row. Steps
that GradScaler skipped are passed over.

**Remedy.** Call optimizer.zero_grad() once before each step's first backward pass, on the optimizer
(or the model) whose parameters are trained.

**False alarms to expect.** Momentum that is kept in .grad on purpose.

**Missing data.** Without the collection loop nothing is inspected.

**Source.** The contract of torch.Tensor.backward ("accumulates gradients in the leaves"); named by
TheDeepChecker and UMLAUT as an invariant that needs no threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import (
    TRAIN,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import loop, skipped
from trainwarden.rules._parameters import Bounds, CheckedRule, param


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsNotZeroed(CheckedRule[Json]):
    """Fire when step after step the gradients of before are added to."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOP001",
        "GradientsNotZeroed",
        Severity.ERROR,
        Tier.CRITICAL,
        (Need("loop", "value"), Need("optimizer", "value")),
        (
            "Call optimizer.zero_grad() before the first backward pass of each step.",
            "Call it on the optimizer that steps, or on the model that it trains.",
            "To accumulate on purpose, zero after the step, not never.",
        ),
        "capture the collection loop, as trainwarden.watch() does by default; gradients can be "
        "left over only after an optimizer's step: without one OptimizerNotStepping speaks",
        explains=(
            "DeadRelu",
            "ExplodingGradient",
            "ExplodingTensor",
            "GradientClipping",
            "LearningRateTooHigh",
            "LossNotDecreasing",
            "LossSpike",
            "Overfit",
            "Overtraining",
            "SaturatedActivation",
            "VanishingGradient",
            "WeightUpdateRatio",
        ),
    )

    patience: int = param(
        3, "Saved steps in a row with carried gradients.", "saved steps", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """Nothing was carried yet."""
        return {"since": -1, "count": 0, "told": False}

    def inspects(self, obs: Observation) -> bool:
        """The fact itself is there."""
        return "gradients_carried" in obs.scalars.get("loop", {})

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count saved steps in a row that added to old gradients."""
        if obs.mode is not TRAIN or state["told"] or skipped(obs):
            return state, ()
        carried = loop(obs)["gradients_carried"]
        if carried == 0:
            return ({**state, "since": -1, "count": 0} if state["count"] else state), ()
        if carried != 1:
            return state, ()
        since = obs.step if state["count"] == 0 else min(state["since"], obs.step)
        state = {"since": since, "count": state["count"] + 1, "told": False}
        if state["count"] < self.patience:
            return state, ()
        message = (
            f"at {state['count']} saved steps in a row since step {since} the gradients of the "
            "step before were still there when backward() added new ones: optimizer.zero_grad() "
            "is not called"
        )
        evidence = {"kind": "not_zeroed", "saved_steps": state["count"]}
        value, limit = float(state["count"]), float(self.patience)
        return {**state, "told": True}, [
            Finding(obs.step, "", value, limit, message, since, evidence)
        ]
