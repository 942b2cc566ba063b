"""OPT003 LearningRateTooLow: healthy gradients, steps too short to get anywhere.

**Why it hurts.** The job ends before the weights have moved; the loss is where it was.

**How it is computed.** r is the L2 norm of a weight matrix's update over that of the matrix, per
step (unit: 1; between saved steps the change is divided by the steps), of the fastest matrix. At
1e-5 a matrix needs 10,000 steps to change by a tenth. It fires when

* r was above 0 and under ``max_ratio`` at every saved step of a stretch of ``min_steps`` steps and
  ``min_saves`` saved steps;
* the loss has lost less than ``min_fall`` of its start;
* the start was near chance: within ``chance`` of ln C for C classes, or at least half of the
  targets' mean square about their mean. Where neither is known, r must be under a fifth of
  ``max_ratio``.

Not judged: a learning rate that rises (warm-up begins anew) or has fallen below a tenth of its
highest (OPT004's business); runs that lost 0.3 of their starting loss at any time; gradients that
decay by three decades over the layers (GRD001's); weights in bf16 or fp16 (NUM002's); losses that
are 0 or less; runs of several optimizers; losses that start low. Steps that GradScaler skipped are
passed over. Told once.

**Remedy.** Multiply the learning rate by 10, and again, until the loss moves.

**False alarms to expect.** A trained network that is trained on, by a loss of one's own.

**Missing data.** Without updates or losses nothing is inspected.

**Source.** log10 of update ÷ weight should lie in [-4, -1]: TheDeepChecker (TOSEM 2022). Measured:
the slowest of 80 healthy runs that start near chance moves its fastest matrix by 9e-4 a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from trainwarden.rules._baseline import choices
from trainwarden.rules._facts import rounded, several_optimizers, skipped
from trainwarden.rules._motion import bad_loss, learning_rate, trains, update_ratios
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow, main_loss
from trainwarden.rules._selection import gradient_matrices, weight_matrices
from trainwarden.stats.derived import STATISTICS

UPDATE = Need("weights", "update_ratio")
LOSSES = Need("losses", "value")
_LOW_PRECISION = frozenset({"bfloat16", "float16"})
_DECADES = 1e3  # from the last matrix to the first: gradients have vanished
_DECAYED = 0.1
_UNKNOWN = 0.2  # of max_ratio, where the loss at chance is unknown
_VARIANCE = 0.5
_LEARNED = 0.3
_SQUARES = ("mse_loss.target_std",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateTooLow(CheckedRule[Json]):
    """Fire when the loss rests because the steps are tiny, not because there is no gradient."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OPT003",
        "LearningRateTooLow",
        Severity.WARNING,
        Tier.EVIDENCE,
        (UPDATE, LOSSES, Need("gradients", "abs_mean"), Need("optimizer", "value")),
        (
            "Multiply the learning rate by 10; if that helps, by 10 again.",
            "Check the unit of the schedule: a warm-up of epochs where steps were meant?",
            "SGD wants about 1e-1 where Adam wants 1e-3.",
        ),
        "capture the collections weights and losses; trainwarden.watch() does so by default",
        explains=("LossNotDecreasing", "UnchangedTensor"),
    )

    max_ratio: float = param(1e-4, "Update over weight that is tiny.", bounds=Bounds(gt=0))
    min_steps: int = param(50, "Steps without a sign of life.", "steps", bounds=Bounds(ge=1))
    min_saves: int = param(5, "Saved steps among them.", "saved steps", bounds=Bounds(ge=2))
    min_fall: float = param(
        0.03, "Share of the starting loss whose loss is a sign of life.", bounds=Bounds(gt=0, lt=1)
    )
    chance: float = param(0.3, "How near ln C a loss is at chance.", bounds=Bounds(gt=0, lt=1))

    def start(self) -> Json:
        """No step has been seen."""
        return {"last": -1, "since": -1, "saves": 0, "top": 0.0, "rate": 0.0, "near": None,
                "told": False, "loss": begin()}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Weights and the loss of a training step."""
        return obs.mode is TRAIN and {"weights", "losses"} <= obs.present

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend the stretch of tiny updates, or begin it anew."""
        if state["told"] or not trains(obs) or skipped(obs):
            return state, ()
        if bad_loss(obs) or several_optimizers(obs) or _low_precision(obs):
            return {**state, "told": True}, ()
        loss = main_loss(obs)
        if loss is not None and loss[1] <= 0:
            return {**state, "told": True}, ()
        near = state["near"]
        if near is None and loss is not None:
            near = _near_chance(obs, loss[1], self.chance)
        gap = max(1, obs.step - state["last"]) if state["last"] >= 0 else 1
        state = {**state, "last": obs.step, "near": near, "loss": follow(state["loss"], obs)}
        if len(state["loss"]["last"]) >= self.min_saves and fall(state["loss"]) >= _LEARNED:
            return {**self.start(), "told": True}, ()  # the rate has shown that it can
        state = self._stretch(state, obs, gap)
        if not self._ripe(state, obs):
            return state, ()
        return {**state, "told": True}, [self._finding(state, obs)]

    def _stretch(self, state: Json, obs: Observation, gap: int) -> Json:
        rate = learning_rate(obs)
        rate = state["rate"] if math.isnan(rate) else rate
        ratios = update_ratios(obs)
        known = ratios[~np.isnan(ratios)]
        ratio = float(known.max()) / gap if known.size else math.nan
        limit = self.max_ratio * (1.0 if state["near"] is True else _UNKNOWN)
        over = known.size > 0 and not 0 < ratio < limit
        if over or rate > state["rate"] * (1 + 1e-6) or rate < _DECAYED * state["rate"]:
            top = max(rate, state["rate"])
            return {**state, "since": -1, "saves": 0, "top": 0.0, "rate": top}
        if not known.size:
            return state
        since = obs.step if state["since"] < 0 else state["since"]
        top = max(ratio, state["top"])
        return {**state, "since": since, "saves": state["saves"] + 1, "top": top}

    def _ripe(self, state: Json, obs: Observation) -> bool:
        if state["since"] < 0 or state["near"] is False or state["near"] is None:
            return False
        steps = obs.step - state["since"]
        fallen = fall(state["loss"])
        return (
            state["saves"] >= self.min_saves
            and steps >= self.min_steps
            and fallen < self.min_fall
            and not _vanished(obs)
        )

    def _finding(self, state: Json, obs: Observation) -> Finding:
        rate, top, fallen = state["rate"], state["top"], fall(state["loss"])
        needed = 0.1 / top
        at_rate = f" at a learning rate of {rate:g}" if rate > 0 else ""
        message = (
            f"no weight matrix moves by more than {top:.1e} of its size a step{at_rate} since step "
            f"{state['since']}: a change by a tenth takes {needed:,.0f} steps; the loss has "
            f"{'fallen' if fallen >= 0 else 'risen'} by {abs(fallen):.1%}"
        )
        evidence = {
            "learning_rate": rounded(rate),
            "steps_for_a_tenth": rounded(needed),
            "loss_fall": rounded(fallen),
            "near_chance": state["near"] is True,
        }
        sure = 0.9 if state["near"] is True else 0.8
        since = state["since"]
        return Finding(obs.step, "", top, self.max_ratio, message, since, evidence, confidence=sure)


def _low_precision(obs: Observation) -> bool:
    rows = weight_matrices(obs.layout)
    return bool(rows.size) and obs.layout.tensors[int(rows[0])].dtype in _LOW_PRECISION


def _near_chance(obs: Observation, loss: float, chance: float) -> bool | str:
    """True near the loss of a guess, False below it, ``unknown`` where that is not known."""
    count = choices(obs)
    if count > 1:
        return loss >= (1 - chance) * math.log(count)
    told = [obs.scalars.get("objective", {}).get(name, math.nan) for name in _SQUARES]
    spread = max((v for v in told if math.isfinite(v)), default=0.0)
    return loss >= _VARIANCE * spread**2 if spread > 0 else "unknown"


def _vanished(obs: Observation) -> bool:
    rows = obs.among(gradient_matrices(obs.layout))
    if not rows.size:
        return False
    values = STATISTICS["abs_mean"].compute(obs.stats[rows])
    return not values[-1] > 0 or bool(values[0] * _DECADES < values[-1])
