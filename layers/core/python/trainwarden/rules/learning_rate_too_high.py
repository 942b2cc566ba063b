"""OPT002 LearningRateTooHigh: the first steps rewrite the weights, and the loss gets worse.

**Why it hurts.** A step as long as the weights themselves forgets what they hold; the loss jumps or
swings, ReLUs die, and lowering the rate later does not bring them back.

**How it is computed.** r is the L2 norm of a weight matrix's update over that of the matrix, per
step (unit: 1; between saved steps the change is divided by the steps). A saved step is *violent*
when a quarter of the matrices at most have r under ``max_ratio``. Within the first ``within`` steps
of the run it fires once violent steps have come and

* *diverged*: at one or the next two saved steps, the loss is above ``max_rise`` times its start,
  or not finite;
* *worse*: at ``patience`` of them, the loss is a tenth above its start;
* *stuck*: ``patience`` have come, 25 steps have passed, and the median of the last five losses is
  at or above 0.95 of the start.

The kind is in the evidence as ``kind``. An update along a gradient a hundred times longer than the
first one is GRD002's business. Not judged: runs of several optimizers and losses that are
0 or less at the start (adversaries, policy gradients); steps that GradScaler skipped. Told once.

**Remedy.** Divide the learning rate by 10, and again; warm it up; check that a rate made for SGD
did not meet Adam.

**False alarms to expect.** Weights that start close to 0 everywhere.

**Missing data.** Without updates (first saved step, updates not captured) a step is not judged.
Saved steps far apart hide violent ones.

**Source.** log10 of update ÷ weight should lie in [-4, -1]: TheDeepChecker (TOSEM 2022). Measured:
of 80 healthy runs the roughest begins at 0.3 (Adam at 0.02 on a small CNN) and learns at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np

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
from trainwarden.rules._facts import rounded, several_optimizers, skipped
from trainwarden.rules._motion import (
    bad_loss,
    gradient_norm,
    infinite_gradients,
    learning_rate,
    trains,
    update_ratios,
    violent,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, follow, main_loss

UPDATE = Need("weights", "update_ratio")
LOSSES = Need("losses", "value")
_QUARTER = 0.25
_RECENT = 3  # saved steps after a violent one in which a divergence is its doing
_WORSE, _STUCK, _STUCK_STEPS = 1.1, 0.95, 25
_OWN = 100.0  # times the first gradient norm: a longer step is not the rate's doing, see GRD002


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateTooHigh(CheckedRule[Json]):
    """Fire when updates as large as the weights make the loss worse."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OPT002",
        "LearningRateTooHigh",
        Severity.WARNING,
        Tier.EVIDENCE,
        (UPDATE, LOSSES, Need("gradients", "l2"), Need("optimizer", "value")),
        (
            "Divide the learning rate by 10; if that helps, by 10 again.",
            "Warm the learning rate up over the first hundred steps.",
            "Adam and its kin want about 1e-3 where SGD wants 1e-1.",
            "Clip gradients by norm.",
        ),
        "capture the collections weights and losses; trainwarden.watch() does so by default",
        explains=("DeadRelu", "ExplodingGradient", "ExplodingTensor", "LossSpike",
                  "LossNotDecreasing", "TensorVariance", "UnchangedTensor", "SaturatedActivation",
                  "AllZero", "GradientClipping", "WeightUpdateRatio"),
    )  # fmt: skip

    max_ratio: float = param(0.2, "Update over weight that is violent.", bounds=Bounds(gt=0))
    max_rise: float = param(3.0, "Loss over its start that is a divergence.", bounds=Bounds(gt=1))
    patience: int = param(3, "Violent saved steps.", "saved steps", bounds=Bounds(ge=1))
    within: int = param(200, "Steps from the first one that are judged.", "steps",
                        bounds=Bounds(ge=1))  # fmt: skip

    def start(self) -> Json:
        """No step has been seen."""
        return {"at": -1, "last": -1, "violent": 0, "worse": 0, "since": -1, "top": 0.0,
                "told": False, "norms": [], "calm": 0, "loss": begin()}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Weights and the loss of a training step."""
        return obs.mode is TRAIN and {"weights", "losses"} <= obs.present

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count violent steps; judge the loss that follows."""
        if state["told"] or not trains(obs):
            return state, ()
        at = obs.step if state["at"] < 0 else state["at"]
        if obs.step - at > self.within:
            return {**self.start(), "told": True}, ()
        first = state["loss"]["first"]
        gap = max(1, obs.step - state["last"]) if state["last"] >= 0 else 1
        state = {**state, "at": at, "last": obs.step, "loss": follow(state["loss"], obs)}
        if first and first[0] <= 0:
            return {**state, "told": True}, ()
        ratio = math.nan
        if _own(state["norms"]) and violent(obs, self.max_ratio * gap):
            ratio = _typical(update_ratios(obs)) / gap
        state["norms"] = _norms(state["norms"], obs)
        ill = ratio >= self.max_ratio and not skipped(obs)
        if not ill:
            state["calm"] += 1
            if not state["violent"]:
                return state, ()
        value = _loss(obs)
        if ill:
            state = {
                **state,
                "violent": state["violent"] + 1,
                "worse": state["worse"] + (value > _WORSE * _first(first, value)),
                "since": obs.step if state["since"] < 0 else state["since"],
                "top": max(state["top"], min(ratio, 1e300)),
                "calm": 0,
            }
        kind = self._kind(state, _first(first, value), value, obs)
        if not kind or several_optimizers(obs):
            return state, ()
        finding = self._finding(state, obs, kind, (_first(first, math.nan), value))
        return {**state, "told": True}, [finding]

    def _kind(self, state: Json, start: float, value: float, obs: Observation) -> str:
        if value > self.max_rise * start and state["calm"] < _RECENT:
            return "diverged"
        if state["worse"] >= self.patience:
            return "worse"
        recent = state["loss"]["last"]
        stuck = len(recent) >= self.patience and median(recent) >= _STUCK * start
        ripe = state["violent"] >= self.patience and obs.step - state["at"] >= _STUCK_STEPS
        return "stuck" if stuck and ripe else ""

    def _finding(
        self, state: Json, obs: Observation, kind: str, losses: tuple[float, float]
    ) -> Finding:
        start, value = losses
        rate = learning_rate(obs)
        at_rate = "" if math.isnan(rate) else f" at a learning rate of {rate:g}"
        top = state["top"]
        now = f"{value:.4g}" if math.isfinite(value) else "not finite"
        message = (
            f"one step changes the weights by {top:.2g} times their own size{at_rate}, and the "
            f"loss is {now} after a start of {start:.4g}"
        )
        evidence = {
            "kind": kind,
            "violent_steps": state["violent"],
            "learning_rate": rounded(rate),
            "loss": rounded(value),
            "loss_at_start": rounded(start),
        }
        sure = 0.8 if kind == "stuck" else 0.95
        since = state["since"]
        return Finding(obs.step, "", top, self.max_ratio, message, since, evidence, confidence=sure)


def _norms(norms: Json, obs: Observation) -> Json:
    """First and latest norm of the gradients; a non-finite one counts as endless."""
    norm = gradient_norm(obs)
    if math.isnan(norm):
        return norms if not infinite_gradients(obs) or not norms else [norms[0], 1e300]
    return [norms[0] if norms else norm, norm]


def _loss(obs: Observation) -> float:
    """The loss; infinity where it is not finite, NaN where there is none."""
    loss = main_loss(obs)
    if loss is None:
        return math.inf if bad_loss(obs) else math.nan
    return loss[1]


def _own(norms: Json) -> bool:
    """Say whether the gradient behind this update was still one of the run's usual size."""
    return not norms or norms[1] <= _OWN * norms[0] or norms[0] == 0


def _typical(ratios: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """Ratio that three quarters of the matrices reach; NaN if none is known."""
    known = ratios[~np.isnan(ratios)]
    if 2 * known.size < ratios.size or not known.size:
        return math.nan
    return float(np.sort(known)[int(_QUARTER * (known.size - 1))])


def _first(first: Sequence[float], fallback: float) -> float:
    """Loss before the first update could show: the very first one."""
    return first[0] if first else fallback
