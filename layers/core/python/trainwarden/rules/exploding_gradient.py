"""GRD002 ExplodingGradient: gradients grow by orders of magnitude and take the loss along.

**Why it hurts.** One step along a gradient a thousand times too long throws the weights far away;
the next losses are huge, then infinite.

**How it is computed.** n is the L2 norm of all gradients (unit: loss units per parameter unit), its
base the median of the first five finite norms of the run. It fires when

* *growth*: n is at least ``growth`` times the base and the loss above ``max_rise`` times its start;
* *post_mortem*: loss or gradients are not finite, and either one of the last finite norms was at
  least the square root of ``growth`` times the base, or the loss rose tenfold between two saved
  steps (scalar ``window.loss_max``), or a norm told of the steps in between (``history``) did grow;
* *depth*: at ``patience`` saved steps in a row mean |gradient| of the first weight matrix is at
  least ``growth`` times that of the last, growing from layer to layer, in a run that does not learn
  (its loss has not lost a tenth of its start);
* *steep*: at the first saved step n x |weights| ÷ loss, the part of itself by which the loss
  changes per part by which the weights do, is above ``max_steepness``; not where the inputs are
  far from standardised (RMS above 5: DAT003's business).

The kind is in the evidence as ``kind``. Steps that GradScaler skipped are passed over. Told once.

**Remedy.** Clip gradients (torch.nn.utils.clip_grad_norm_), lower or warm up the learning rate,
normalise between the layers, start recurrent matrices orthogonal.

**False alarms to expect.** A loss whose unit changes during the run by a factor of a thousand.

**Missing data.** Without gradients nothing is inspected. A non-finite step whose norms before were
steady (0 ÷ 0, square root of 0, a NaN in the data) is NUM001's business alone.

**Source.** Pascanu, Mikolov, Bengio (2013) on recurrent networks. Measured: over 80 healthy runs no
norm above its base by more than 60 times while the loss is above its start; every run that died of
it passed 1,000 times within two steps. Steepness at the start: 0.5 to 252 in those, 2,700 to 1e6
in recurrent networks that explode from the start.
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
    ends,
    gradient_norm,
    infinite_gradients,
    unusual_input,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow, main_loss
from trainwarden.rules._selection import gradient_matrices, measured

GRADIENT = Need("gradients", "l2")
_BASE, _LAST = 5, 3  # norms kept from the start and from the end
_MIN_LAYERS = 4
_LEARNS = 0.1
_WINDOW_RISE = 10.0
_MONOTONE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingGradient(CheckedRule[Json]):
    """Fire when the gradient's norm leaves its own history and the loss follows."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "GRD002",
        "ExplodingGradient",
        Severity.ERROR,
        Tier.CRITICAL,
        (
            GRADIENT,
            Need("weights", "l2"),
            Need("losses", "value"),
            Need("history", "value"),
            Need("window", "value"),
        ),
        (
            "Clip gradients: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).",
            "Lower the learning rate by a factor of 10, or warm it up.",
            "Put normalisation layers between the layers, or scale residual branches down.",
            "Start recurrent matrices orthogonal; use LSTM or GRU instead of a plain RNN.",
        ),
        "capture the collection gradients; trainwarden.watch() does so by default",
        explains=("ExplodingTensor", "LossSpike", "LossNotDecreasing", "TensorVariance",
                  "UnchangedTensor", "DeadRelu", "InitialLoss", "SaturatedActivation",
                  "GradientClipping", "WeightUpdateRatio"),
    )  # fmt: skip

    growth: float = param(
        1000.0, "Norm over the run's own base that is an explosion.", bounds=Bounds(gt=1)
    )
    max_rise: float = param(3.0, "Loss over its start that must come with it.", bounds=Bounds(gt=1))
    max_steepness: float = param(
        2000.0, "Relative change of the loss per relative change of the weights.",
        bounds=Bounds(gt=1),
    )  # fmt: skip
    patience: int = param(
        3, "Saved steps in a row, for growth over depth.", "saved steps", bounds=Bounds(ge=1)
    )

    def start(self) -> Json:
        """No gradient has been seen."""
        return {"base": [], "last": [], "depth": 0, "told": False, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """Gradients of a training step."""
        return obs.mode is TRAIN and obs.captured("gradients").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow the norm; say once that it exploded, or that it had before all became NaN."""
        if obs.mode is not TRAIN or state["told"] or skipped(obs):
            return state, ()
        norm = gradient_norm(obs)
        if (math.isnan(norm) and infinite_gradients(obs)) or bad_loss(obs):
            return {**state, "told": True}, self._post_mortem(state, obs)
        if not norm > 0:  # none captured, or all zero: nothing explodes
            return {**state, "loss": follow(state["loss"], obs)}, ()
        found = self._growth(state, obs, norm) if state["base"] else self._steep(obs, norm)
        depth, deep = self._depth(state, obs)
        found = found or deep
        base = state["base"] if len(state["base"]) >= _BASE else [*state["base"], norm]
        state = {
            "base": base,
            "last": [*state["last"][1 - _LAST :], [obs.step, norm]],
            "depth": depth,
            "told": found is not None,
            "loss": follow(state["loss"], obs),
        }
        return state, [found] if found else ()

    def _growth(self, state: Json, obs: Observation, norm: float) -> Finding | None:
        loss = main_loss(obs)
        if not state["base"] or loss is None or not state["loss"]["first"]:
            return None
        if norm < self.growth * min(state["base"]):
            return None
        base, first = median(state["base"]), median(state["loss"]["first"])
        risen = first > 0 and loss[1] > self.max_rise * first
        if norm < self.growth * base or not risen or several_optimizers(obs):
            return None
        message = (
            f"the gradient's norm is {norm:.3g}, {norm / base:.2g} times the {base:.3g} of the "
            f"first steps, and the {loss[0]} {loss[1]:.4g} after a start of {first:.4g}"
        )
        evidence = {"kind": "growth", "base": rounded(base), "loss": rounded(loss[1]),
                    "loss_at_start": rounded(first)}  # fmt: skip
        since = _since(state, base * math.sqrt(self.growth), obs.step)
        return Finding(obs.step, "", norm, self.growth * base, message, since, evidence)

    def _steep(self, obs: Observation, norm: float) -> Finding | None:
        loss, rows = main_loss(obs), obs.captured("weights")
        if loss is None or loss[1] <= 0 or not rows.size or several_optimizers(obs):
            return None
        size = float(np.linalg.norm(measured(obs, rows, "l2")))
        value = min(norm * size / loss[1], 1e300)
        if not value > self.max_steepness or unusual_input(obs):
            return None
        message = (
            f"at the start the gradient's norm is {norm:.3g} at weights of norm {size:.3g} and a "
            f"loss of {loss[1]:.4g}: a change of the weights by 0.1 % changes the loss by "
            f"{value / 1000:.2g} times itself"
        )
        evidence = {"kind": "steep", "norm": rounded(norm), "weights": rounded(size)}
        limit = self.max_steepness
        return Finding(obs.step, "", value, limit, message, obs.step, evidence, confidence=0.8)

    def _post_mortem(self, state: Json, obs: Observation) -> Sequence[Finding]:
        """Something is not finite: were the gradients of the steps before already too large?"""
        limit = math.sqrt(self.growth)
        base = median(state["base"]) if state["base"] else math.nan
        between = [
            (int(name.rpartition("@")[2]), value)
            for name, value in obs.scalars.get("history", {}).items()
            if name.startswith("grad_norm@") and name.rpartition("@")[2].isdigit()
        ]
        norms = [(s, v) for s, v in [*state["last"], *sorted(between)] if math.isfinite(v)]
        step, worst = max(norms, key=lambda one: one[1], default=(obs.step, math.nan))
        grown = len(state["base"]) > 1 and worst >= limit * base
        first = median(state["loss"]["first"]) if state["loss"]["first"] else math.nan
        peak = obs.scalars.get("window", {}).get("loss_max", math.nan)
        ran_away = first > 0 and math.isfinite(peak) and peak > _WINDOW_RISE * first
        if not (grown or ran_away):
            return ()
        evidence = {"kind": "post_mortem", "base": rounded(base), "norm": rounded(worst),
                    "loss_at_start": rounded(first), "loss_max": rounded(peak)}  # fmt: skip
        if grown:
            value, held = worst, limit * base
            times = f"{worst / base:.2g} times"
            what = f"the gradient's norm had grown to {worst:.3g} from {base:.3g}, {times}"
        else:
            value, held = peak, _WINDOW_RISE * first
            what = f"the loss had risen to {peak:.4g} from {first:.4g}"
        message = f"before loss or gradients became non-finite at step {obs.step}, {what}"
        since = min(step, obs.step) if grown else obs.step
        return [Finding(obs.step, "", value, held, message, since, evidence, confidence=0.9)]

    def _depth(self, state: Json, obs: Observation) -> tuple[int, Finding | None]:
        rows = obs.among(gradient_matrices(obs.layout))
        if rows.size < _MIN_LAYERS:
            return state["depth"], None
        first, last = ends(obs, rows)
        if not last > 0 or first < self.growth * last:
            return 0, None
        values = measured(obs, rows, "abs_mean")
        if np.count_nonzero(values[:-1] > values[1:]) < _MONOTONE * (values.size - 1):
            return 0, None
        count = state["depth"] + 1
        fallen = fall(state["loss"])
        if count < self.patience or fallen >= _LEARNS or math.isnan(fallen):
            return count, None
        name = obs.layout.names[int(rows[0])]
        message = (
            f"mean |gradient| grows from {last:.2g} in the last of {values.size} weight matrices "
            f"to {first:.2g} in the first, and the loss does not fall"
        )
        evidence = {"kind": "depth", "first_layer": rounded(first), "last_layer": rounded(last)}
        limit = self.growth * last
        return count, Finding(obs.step, name, first, limit, message, obs.step, evidence)


def _since(state: Json, limit: float, now: int) -> int:
    """First of the remembered steps whose norm was already over ``limit``."""
    return min((step for step, norm in state["last"] if norm >= limit and step <= now), default=now)
