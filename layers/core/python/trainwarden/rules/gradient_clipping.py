"""GRD004 GradientClipping: every step is cut to a small part of its gradient.

**Why it hurts.** Clipping is for the rare long gradient. Where it cuts each step to a hundredth,
the limit and the learning rate together set the length of all steps, whatever the gradient says.

**How it is computed.** From scalars of the hook: ``window.clipped``, the share of the calls of
clip_grad_norm_ since the last saved step that shortened (unit: 1), ``optimizer.grad_norm``, the
norm before, and ``optimizer.clip_limit``. It fires, as information, once over the last
``min_saves`` saved steps, which span at least ``min_steps`` steps, every call has shortened, the
median of norm ÷ limit is at least ``max_ratio``, and the loss has lost less than ``max_fall`` of
its start. Told once.

**Remedy.** Raise the limit to a usual norm of the run (see evidence), or raise the learning rate.

**False alarms to expect.** Optimizers that do not depend on the gradient's length (Adam) learn
regardless, and are not told of while they do.

**Missing data.** Nothing is inspected where clip_grad_norm_ is not called; norms that are NaN or
infinite are passed over.

**Source.** Pascanu, Mikolov, Bengio (2013): the limit from a usual norm. Measured: recurrent
networks that learn clip every step at norms 1 to 10 times the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
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
from trainwarden.rules._facts import rounded
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow

CLIPPED = Need("window", "value")
NORM = Need("optimizer", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientClipping(CheckedRule[Json]):
    """Say that clipping, not the gradient, sets the steps of a run that does not learn."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "GRD004",
        "GradientClipping",
        Severity.INFO,
        Tier.EVIDENCE,
        (CLIPPED, NORM),
        (
            "Raise the limit of clip_grad_norm_ to a usual norm of the run.",
            "Or raise the learning rate by as much as the limit shortens.",
        ),
        "call torch.nn.utils.clip_grad_norm_ before optimizer.step() under trainwarden.watch()",
    )

    max_ratio: float = param(100.0, "Norm over limit that is too much.", bounds=Bounds(gt=1))
    min_saves: int = param(5, "Saved steps looked at.", "saved steps", bounds=Bounds(ge=2))
    min_steps: int = param(100, "Steps these must span.", "steps", bounds=Bounds(ge=1))
    max_fall: float = param(
        0.05, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing was clipped."""
        return {"since": -1, "saves": 0, "ratios": [], "told": False, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """A training step whose gradients went through clip_grad_norm_."""
        return obs.mode is TRAIN and "clip_limit" in obs.scalars.get("optimizer", {})

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend the streak of steps that were all cut."""
        if state["told"] or not self.inspects(obs):
            return state, ()
        told = obs.scalars["optimizer"]
        norm, limit = told.get("grad_norm", math.nan), told["clip_limit"]
        state = {**state, "loss": follow(state["loss"], obs)}
        if not (math.isfinite(norm) and math.isfinite(limit) and limit > 0):
            return state, ()
        always = obs.scalars.get("window", {}).get("clipped", float(norm > limit)) >= 1.0
        if not always or norm <= limit:
            return {**state, "since": -1, "saves": 0, "ratios": []}, ()
        since = obs.step if state["since"] < 0 else state["since"]
        ratios = [*state["ratios"][1 - self.min_saves :], min(norm / limit, 1e300)]
        state = {**state, "since": since, "saves": state["saves"] + 1, "ratios": ratios}
        ripe = len(ratios) >= self.min_saves and obs.step - since >= self.min_steps
        if not ripe or (middle := median(ratios)) < self.max_ratio:
            return state, ()
        fallen = fall(state["loss"])
        if not fallen < self.max_fall:
            return state, ()
        message = (
            f"every step since step {since} is clipped to {limit:g}, one part in {middle:.3g} of "
            f"the gradient's norm, and the loss has fallen by {max(0.0, fallen):.1%}"
        )
        evidence = {"limit": rounded(limit), "usual_norm": rounded(middle * limit)}
        finding = Finding(
            obs.step, "", middle, self.max_ratio, message, min(since, obs.step), evidence,
            confidence=0.7,
        )  # fmt: skip
        return {**state, "told": True}, [finding]
