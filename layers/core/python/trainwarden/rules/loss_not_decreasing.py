"""LOS001 LossNotDecreasing: the training loss stays where it began, or runs away.

**Why it hurts.** The job pays for steps that teach nothing.

**How it is computed.** The start is the median loss of the first saved steps, the level the median
of the last ``window`` saved ones (unit: the loss's own). The rule fires once ``min_steps`` steps
and ``min_saves`` saved steps have passed and

* *flat*: the level, and the best level so far, lie within ``min_fall`` of the start; or
* *diverged*: the level is above ``max_rise`` times the start, at ``patience`` saved steps in a row.

A loss that is ever 0 or less is a surrogate (policy gradient, log-likelihood of densities) and is
not judged flat. While the learning rate is still rising the clock does not run.

With ``diff_percent``, ``num_steps`` or ``mode`` given, SageMaker's meaning instead: every
``num_steps`` steps, the loss must be at least ``diff_percent`` per cent below that of the newest
saved step that is ``num_steps`` or more older; equal counts as not decreasing.

**Remedy.** Overfit one batch first. Then: learning rate (try 10 times up and down), labels that fit
the inputs, softmax applied twice, shapes that broadcast in the loss, the optimizer's parameters.

**False alarms to expect.** Tasks with a long first plateau; raise ``min_steps``.

**Missing data.** NaN and infinity are NUM001's business and are passed over.

**Source.** SageMaker Debugger's LossNotDecreasing alarms on half of healthy runs, since any noise
is a non-decrease; medians over a window and the run's own start are measured on our healthy runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import Finding, Json, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules._parameters import Bounds, CheckedRule, param

LOSSES = Need("losses", "value")
_MODES = ("TRAIN", "EVAL", "GLOBAL")
_START_SAVES = 5
_START_STEPS = 10
_MAX_KEPT = 64  # saved steps remembered for SageMaker's meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNotDecreasing(CheckedRule[Json]):
    """Fire when the training loss never left its start, or ran away from it."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS001",
        "LossNotDecreasing",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES,),
        (
            "Try a learning rate 10 times higher, then 10 times lower.",
            "Try to overfit a single batch; if that fails, model, loss or labels are wrong.",
            "Check the loss: softmax applied twice, shapes that broadcast, labels out of order.",
            "Check that the optimizer holds the model's parameters and that they get gradients.",
        ),
        "capture losses: pass loss_fn to watch(), or call hook.record('loss', loss, 'losses')",
    )

    num_steps: int | None = param(
        None, "Steps between compared losses; SageMaker's is 10.", "steps", bounds=Bounds(ge=1)
    )
    diff_percent: float | None = param(
        None, "Least decrease; SageMaker's is 0.", "%", bounds=Bounds(ge=0, le=100)
    )
    mode: str | None = param(None, "Mode of the losses to look at.", choices=_MODES)
    tensor_regex: tuple[str, ...] = param((), "Losses to look at.", pattern=True)
    min_steps: int = param(100, "Steps before the loss is judged.", "steps", bounds=Bounds(ge=1))
    min_saves: int = param(6, "Saved steps before that.", "saved steps", bounds=Bounds(ge=3))
    window: int = param(9, "Saved steps in the level's median.", "saved steps", bounds=Bounds(ge=3))
    min_fall: float = param(
        0.03, "Least share of the start that must be gone.", bounds=Bounds(gt=0, lt=1)
    )
    max_rise: float = param(10.0, "Level over start that is a divergence.", bounds=Bounds(gt=1))
    patience: int = param(3, "Saved steps a divergence must last.", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No loss has been seen."""
        return {"at": -1, "first": [], "last": [], "best": None, "low": None, "saves": 0,
                "rate": 0.0, "high": 0, "told": False}  # fmt: skip

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow the loss; say once that it is flat, once that it ran away."""
        if self.num_steps is not None or self.diff_percent is not None:
            return self._sagemaker(state, obs)
        loss = self._loss(obs)
        if loss is None or obs.mode.value != (self.mode or "TRAIN"):
            return state, ()
        state = self._follow(state, obs, loss[1])
        if state["told"] or state["saves"] < self.min_saves:
            return state, ()
        return self._judge(state, obs, loss[0])

    def _loss(self, obs: Observation) -> tuple[str, float] | None:
        losses = obs.scalars.get("losses") or {}
        name = "loss" if "loss" in losses else min(losses, default="")
        value = losses.get(name, math.nan)
        return (name, value) if math.isfinite(value) else None

    def _follow(self, state: Json, obs: Observation, loss: float) -> Json:
        rate = float(obs.scalars.get("optimizer", {}).get("lr_0", 0.0))
        rising = rate > state["rate"] * 1.000001 and state["at"] >= 0
        at = obs.step if state["at"] < 0 or rising else state["at"]
        first = state["first"]
        if len(first) < _START_SAVES and (not first or obs.step - at < _START_STEPS):
            first = [*first, loss]
        last = [*state["last"][1 - self.window :], loss]
        best = state["best"]
        if len(last) >= min(self.window, self.min_saves):
            level = median(last)
            best = level if best is None else min(best, level)
        low = loss if state["low"] is None else min(loss, state["low"])
        return {**state, "at": at, "first": first, "last": last, "best": best, "low": low,
                "saves": state["saves"] + 1, "rate": max(rate, state["rate"])}  # fmt: skip

    def _judge(self, state: Json, obs: Observation, name: str) -> tuple[Json, Sequence[Finding]]:
        start, level = median(state["first"]), median(state["last"])
        if start <= 0 or state["low"] <= 0:
            return state, ()
        high = state["high"] + 1 if level > self.max_rise * start else 0
        state = {**state, "high": high}
        if high >= self.patience:
            message = (
                f"the {name} has run away: {level:.4g} now, {level / start:.1f} times its start "
                f"of {start:.4g}"
            )
            return self._tell(state, obs, name, level, self.max_rise * start, message)
        limit = start * (1 - self.min_fall)
        enough = obs.step - state["at"] >= self.min_steps
        flat = min(state["best"], level) > limit and level < start * (1 + self.min_fall)
        if not (enough and flat):
            return state, ()
        message = (
            f"the {name} is {level:.4g} after {obs.step - state['at']} steps and was {start:.4g} "
            f"at the start: {max(0.0, 1 - level / start):.1%} lower, at least {self.min_fall:.0%} "
            "was expected"
        )
        return self._tell(state, obs, name, level, limit, message)

    def _tell(
        self, state: Json, obs: Observation, name: str, level: float, limit: float, message: str
    ) -> tuple[Json, Sequence[Finding]]:
        evidence = {"start": median(state["first"]), "best": state["best"], "saves": state["saves"]}
        finding = Finding(obs.step, name, level, limit, message, max(0, state["at"]), evidence,
                          confidence=0.8)  # fmt: skip
        return {**state, "told": True}, [finding]

    def _sagemaker(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Each loss against that of the newest saved step at least ``num_steps`` older."""
        loss = self._loss(obs)
        if loss is None or (self.mode is not None and obs.mode.value != self.mode):
            return state, ()
        name, value = loss
        steps = self.num_steps or 10
        kept: list[list[float]] = state["last"]
        due = state["at"] < 0 or obs.step - state["at"] >= steps
        older = [v for s, v in kept if obs.step - s >= steps]
        state = {**state, "last": [*kept[1 - _MAX_KEPT :], [obs.step, value]]}
        if not older or not due:
            return state, ()
        limit = older[-1] - abs(older[-1]) * (self.diff_percent or 0.0) / 100
        state = {**state, "at": obs.step}
        if value < limit or (value == limit and self.diff_percent):
            return state, ()
        message = (
            f"the {name} was {older[-1]:.4g} {steps} or more steps ago and is {value:.4g} at "
            f"step {obs.step}"
        )
        return state, [Finding(obs.step, name, value, limit, message, obs.step)]
