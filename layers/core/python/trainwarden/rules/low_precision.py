"""NUM002 LowPrecision: numbers that bf16 or fp16 cannot hold, so that nothing is learned.

**Why it hurts.** What is below the smallest fp16 number becomes 0, what is above 65,504 infinite,
and a change below half the distance of two numbers is rounded away. The run looks as if the
learning rate or the loss were wrong.

**How it is computed.** By kind, which is in the evidence as ``kind`` (values are shares,
unit: 1):

* ``adam_eps``: fp16 weights under an Adam-like optimizer whose eps is under 3e-8, which is 0 in
  fp16: the update divides by 0. Told at the first step.
* ``fp16_overflow``: an fp16 activation is infinite while all weights are finite, and loss or
  gradients are not finite either; under GradScaler at ``patience`` saved steps in a row.
* ``fp16_underflow``: in a network that computes in fp16 without a loss scale, no gradient of at
  least half of the weight matrices exceeds 6.1e-5, the smallest normal number, and at least
  ``max_zero`` of their elements are 0, at ``patience`` saved steps in a row.
* ``bf16_swallows_update``: bf16 or fp16 weights whose gradient is not 0 move by less than
  ``min_moved`` of what the learning rate asks for (lr for Adam-like optimizers, lr x gradient for
  others, RMS), in at least half of the matrices at ``patience`` saved steps that span ``min_steps``
  steps. Over n steps between two saved ones a change below that times √n counts, and one above that
  times n begins anew.
* ``loss_scale_collapse``: GradScaler's scale has fallen below ``min_scale``.

The third and fourth need a run that does not learn: its loss has lost less than ``max_fall`` of its
start. Told once.

**Remedy.** By kind: eps=1e-4 or float32 weights; scale inputs and logits down, compute the loss in
float32; torch.amp.GradScaler or bf16; float32 master weights (autocast instead of .bfloat16()).

**False alarms to expect.** Optimizers that round at random or carry the rest along are not: their
weights move as asked.

**Missing data.** What is not captured is not judged; steps that GradScaler skipped count for
``loss_scale_collapse`` and ``fp16_overflow`` only. NaN in the weights is NUM001's business.

**Source.** Micikevicius et al., "Mixed Precision Training" (2018). Measured: sound bf16 and fp16
runs learn within 10 steps; swallowed ones stand at 0 to 0.4 of the update that was asked for.
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
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import rounded, skipped
from trainwarden.rules._motion import bad_loss, infinite_gradients, learning_rate, trains
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import (
    gradient_matrices,
    gradient_of,
    once,
    weight_matrices,
)
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS

LOSSES = Need("losses", "value")
_ZERO, _MIN, _MAX = INDEX["n_zero"], INDEX["min"], INDEX["max"]
_EPS = 2.98e-8  # half of the smallest fp16 number: rounds to 0
_NORMAL = 6.2e-5  # just above the smallest normal fp16 number
_HALF = 0.5
_FP16 = "float16"
_LOW = frozenset({"bfloat16", _FP16})
_REMEDIES = {
    "adam_eps": (
        "Keep the weights in float32 and compute under torch.autocast.",
        "Or give the optimizer eps=1e-4.",
    ),
    "fp16_overflow": (
        "Compute in bf16, whose range is that of float32.",
        "Scale inputs or activations down; normalise before the layer named.",
    ),
    "fp16_underflow": (
        "Scale the loss: torch.amp.GradScaler around backward() and step().",
        "Or compute in bf16.",
        "Do not multiply the loss with a small weight before backward().",
    ),
    "bf16_swallows_update": (
        "Keep float32 weights and compute under torch.autocast(dtype=torch.bfloat16).",
        "Raise the learning rate above the weights' resolution (1/256 of their size in bf16).",
    ),
    "loss_scale_collapse": (
        "Find what is not finite at any scale: a division by 0, sqrt(0), log(0), an overflow.",
        "Compute in bf16 without a scaler.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LowPrecision(CheckedRule[Json]):
    """Fire when bf16 or fp16 loses what training needs."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "NUM002",
        "LowPrecision",
        Severity.ERROR,
        Tier.EVIDENCE,
        (
            LOSSES,
            Need("optimizer", "value"),
            Need("weights", "update_rms"),
            Need("gradients", "rms"),
            Need("activations", "nonfinite"),
        ),
        tuple(text for one in _REMEDIES.values() for text in one[:1]),
        "capture losses, weights, gradients and activations; trainwarden.watch() does by default",
        explains=("VanishingGradient", "UnchangedTensor", "LossNotDecreasing", "ExplodingTensor",
                  "LearningRateTooLow", "AllZero", "LossSpike"),
    )  # fmt: skip

    max_zero: float = param(
        0.5, "Share of zeros in gradients that underflow.", bounds=Bounds(gt=0, le=1)
    )
    min_moved: float = param(
        0.5, "Share of the update asked for that must arrive.", bounds=Bounds(gt=0, lt=1)
    )
    min_scale: float = param(1.0, "Loss scale below which it has collapsed.", bounds=Bounds(gt=0))
    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    min_steps: int = param(20, "Steps that swallowed updates must span.", "steps",
                           bounds=Bounds(ge=0))  # fmt: skip
    max_fall: float = param(
        0.1, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing has been seen."""
        return {"over": 0, "under": 0, "swallowed": 0, "since": -1, "at": -1, "told": False,
                "loss": begin()}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """A training step with a loss; what computes in float32 has nothing to lose."""
        return obs.mode is TRAIN and bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Look for each kind in turn."""
        low = once(obs.layout, "low precision", _low_precision)
        scaled = "loss_scale" in obs.scalars.get("optimizer", {})
        if state["told"] or not (low or scaled) or not trains(obs):
            return state, ()
        found = self._scale(obs) or self._eps(obs)
        gap = max(1, obs.step - state["at"]) if state["at"] >= 0 else 1
        state = {**state, "at": obs.step, "loss": follow(state["loss"], obs)}
        if found is None:
            state["over"], found = self._overflow(state["over"], obs)
        if found is None and not skipped(obs):
            state["under"], found = self._underflow(state, obs)
            if found is None:
                state["swallowed"], state["since"], found = self._swallowed(state, obs, gap)
        return {**state, "told": found is not None}, [found] if found else ()

    def _scale(self, obs: Observation) -> Finding | None:
        scale = obs.scalars.get("optimizer", {}).get("loss_scale", math.nan)
        if not scale < self.min_scale or not skipped(obs):
            return None
        message = (
            f"GradScaler has halved its scale down to {scale:.3g}: the gradients are not finite at "
            "any scale"
        )
        return _finding(obs, "loss_scale_collapse", "", (scale, self.min_scale), message)

    def _eps(self, obs: Observation) -> Finding | None:
        told = obs.scalars.get("optimizer", {})
        eps = told.get("eps_0", math.nan)
        rows = weight_matrices(obs.layout)
        if told.get("adaptive_0", 0.0) != 1.0 or not eps < _EPS or not rows.size:
            return None
        name, dtype = obs.layout.names[int(rows[0])], obs.layout.tensors[int(rows[0])].dtype
        if dtype != _FP16:
            return None
        message = (
            f"eps of the optimizer is {eps:g}, which is 0 in the fp16 of {name}: where the mean "
            "square of a gradient rounds to 0, its update is divided by 0"
        )
        return _finding(obs, "adam_eps", name, (eps, _EPS), message)

    def _overflow(self, count: int, obs: Observation) -> tuple[int, Finding | None]:
        rows = obs.among(once(obs.layout, "fp16 activations", _fp16_activations))
        infinite = rows[(obs.stats[rows, 2:4] > 0).any(axis=1)]
        weights = obs.captured("weights")
        sound = bool(weights.size) and not obs.stats[weights, 1:4].any()
        if not infinite.size or not sound or not (bad_loss(obs) or infinite_gradients(obs)):
            return 0, None
        scaled = "loss_scale" in obs.scalars.get("optimizer", {})
        if count + 1 < (self.patience if scaled else 1):
            return count + 1, None
        row = int(infinite[0])
        name, share = obs.layout.names[row], float(obs.stats[row, 2:4].sum() / obs.stats[row, 0])
        message = (
            f"{share:.1%} of {name} is beyond 65504, the largest fp16 number, while all weights "
            "are finite"
        )
        return count + 1, _finding(obs, "fp16_overflow", name, (share, 0.0), message)

    def _underflow(self, state: Json, obs: Observation) -> tuple[int, Finding | None]:
        rows = obs.among(gradient_matrices(obs.layout))
        scaled = obs.scalars.get("optimizer", {}).get("loss_scale", 0.0) > 1
        if scaled or not rows.size or not once(obs.layout, "fp16", _computes_in_fp16):
            return 0, None
        stats = obs.stats[rows]
        top = np.maximum(stats[:, _MAX], -stats[:, _MIN])
        small = (stats[:, 1:4].sum(axis=1) == 0) & (top <= _NORMAL)
        elements = float(stats[small, 0].sum())
        zeros = float(stats[small, _ZERO].sum()) / elements if elements else 0.0
        fallen = fall(state["loss"])
        if 2 * np.count_nonzero(small) < rows.size or zeros < self.max_zero:
            return 0, None
        count = state["under"] + 1
        if count < self.patience or not (fallen < self.max_fall):
            return count, None
        row, most = int(rows[np.flatnonzero(small)[0]]), abs(float(top[small].max()))
        message = (
            f"{zeros:.0%} of the gradients of {np.count_nonzero(small)} of {rows.size} weight "
            f"matrices are 0 and none is above {most:.1e}: they fall below what fp16 holds, and "
            "no loss scale is in use"
        )
        values = (zeros, self.max_zero)
        return count, _finding(obs, "fp16_underflow", obs.layout.names[row], values, message)

    def _swallowed(
        self, state: Json, obs: Observation, gap: int
    ) -> tuple[int, int, Finding | None]:
        rows = obs.among(once(obs.layout, "low matrices", _low_matrices))
        asked, moved = _asked_and_moved(obs, rows, gap)
        known, far = asked > 0, math.sqrt(gap)  # steps in one direction go sqrt(gap) times as far
        count, since = state["swallowed"], state["since"]
        if not known.any():
            return count, since, None
        still = known & (moved < self.min_moved * asked * far)
        if 2 * np.count_nonzero(still) < np.count_nonzero(known):
            return 0, -1, None
        sure = known & (moved < self.min_moved * asked)
        count += int(2 * np.count_nonzero(sure) >= np.count_nonzero(known))
        since = obs.step if since < 0 else since
        ripe = count >= self.patience and obs.step - since >= self.min_steps
        if not ripe or not fall(state["loss"]) < self.max_fall:
            return count, since, None
        first = int(np.flatnonzero(still)[0])
        name, dtype = obs.layout.names[int(rows[first])], obs.layout.tensors[int(rows[first])].dtype
        share = float(moved[still].sum() / (asked[still].sum() * far))
        message = (
            f"{np.count_nonzero(still)} of {rows.size} {dtype} weight matrices move by "
            f"{share:.1%} of the update that the learning rate of {learning_rate(obs):g} asks for, "
            f"{name} among them: the rest is rounded away"
        )
        found = _finding(obs, "bf16_swallows_update", name, (share, self.min_moved), message, since)
        return count, since, found


def _asked_and_moved(
    obs: Observation, rows: IntArray, gap: int
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float64]], ...]:
    """RMS of the change asked for since the last saved step, at least, and of that which came."""
    none = np.zeros(rows.size)
    rate = learning_rate(obs)
    gradients = gradient_of(obs.layout)[rows] if rows.size else rows
    if not rows.size or not rate > 0 or (gradients < 0).any() or gradients.max() >= len(obs.stats):
        return none, none
    stats = obs.stats[gradients]
    size = STATISTICS["rms"].compute(stats)
    pushed = (size > 0) & (stats[:, 1:4].sum(axis=1) == 0) & ~np.isnan(stats[:, 0])
    adaptive = obs.scalars.get("optimizer", {}).get("adaptive_0", math.nan)
    # without the fact the smaller of both is asked for
    each = size if adaptive == 0 else np.minimum(size, 1.0) if math.isnan(adaptive) else 1.0
    moved = STATISTICS["update_rms"].compute(obs.stats[rows])
    known = pushed & ~np.isnan(moved)
    asked = np.where(known, rate * each * math.sqrt(gap), 0.0)
    return asked, np.where(known, moved, 0.0)


def _finding(
    obs: Observation,
    kind: str,
    name: str,
    values: tuple[float, float],
    message: str,
    since: int = -1,
) -> Finding:
    value, limit = values
    evidence = {"kind": kind, "value": rounded(value)}
    first = obs.step if since < 0 else min(since, obs.step)
    return Finding(
        obs.step, name, value, limit, message, first, evidence, _REMEDIES[kind], confidence=0.95
    )


def _low_matrices(layout: Layout) -> IntArray:
    rows = weight_matrices(layout)
    return rows[np.array([layout.tensors[int(r)].dtype in _LOW for r in rows], dtype=np.bool_)]


def _fp16_activations(layout: Layout) -> IntArray:
    rows = layout.rows("activations")
    return rows[np.array([layout.tensors[int(r)].dtype == _FP16 for r in rows], dtype=np.bool_)]


def _computes_in_fp16(layout: Layout) -> bool:
    return any(
        t.dtype == _FP16
        for t in layout.tensors
        if t.collection in {"activations", "outputs", "weights", "gradients"}
    )


def _low_precision(layout: Layout) -> bool:
    return any(t.dtype in _LOW for t in layout.tensors)
