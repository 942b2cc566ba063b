"""INI001 PoorWeightInitialization: weights start where training cannot start from.

**Why it hurts.** Units that start alike stay alike; signals that shrink or grow from layer to layer
end as 0 or as infinity, and so do the gradients on their way back.

**How it is computed.** At the first saved step, over matrices of linear, convolutional and
recurrent layers (embeddings apart), *scale* is RMS x √fan-in (unit: 1; 0.58 as PyTorch starts, 1 by
LeCun, 1.41 by Kaiming), and *signal* the RMS of the last activation over that of the first, where
there are three or more. By kind, which is in the evidence as ``kind``:

* ``identical``: in at least half of the hidden matrices all units have the same weights, not 0;
* ``zero``: hidden matrices are 0, and the gradients of the first and of at least half of all
  matrices are exactly 0 at three saved steps in a row;
* ``shrinking``: signal under ``min_signal``, or half of the scales under 0.03;
* ``growing``: signal above ``max_signal``;
* ``large``: a scale above ``max_scale``.

And it must hurt. ``identical``: the loss has lost less than 0.3 of its start at the third saved
step; ``zero`` and ``shrinking``: less than a tenth, ``shrinking`` after 20 steps, and by the scales
alone only while the gradient of the first matrix has not grown by half (small weights on purpose
leave a saddle so); ``growing`` and ``large``: the first loss is above 3 ln C for C classes, or not
finite, or C is unknown and the loss has lost less than 0.3 after 20 steps. Told once.

Zeros are intended where they heal: the last matrix, the second half of low-rank adapters, residual
branches (Fixup, LayerScale).

With ``threshold`` given, SageMaker's meaning instead: in the first ``steps`` steps the variances
of the activations differ by more than ``threshold`` times between layers, or the range of a
gradient is under ``distribution_range``, or the loss has not improved for ``patience`` steps.
SageMaker looks at the inputs of activations and at the range from the 5th to the 95th percentile;
outputs and the full range stand for them.

**Remedy.** Kaiming initialisation for ReLU, Xavier for tanh and sigmoid, orthogonal for recurrent
matrices; never constants; normalisation layers or smaller residual branches in deep networks.

**False alarms to expect.** Hidden layers set to one constant on purpose.

**Missing data.** Without the first saved step nothing is judged. NaN at the start is NUM001's.

**Source.** Glorot and Bengio (2010); He et al. (2015); SageMaker Debugger. Measured over 80 healthy
runs: signals from 0.13 to 2.6, scales to 1.7; ill ones reach 1e-7 and 2e5, and scales of 4.6 to 17.
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
    FloatArray,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._baseline import choices
from trainwarden.rules._facts import rounded, skipped
from trainwarden.rules._first_signs import first_signs
from trainwarden.rules._motion import bad_loss
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow, main_loss
from trainwarden.rules._selection import gradient_matrices, once, weight_matrices
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS, finite

WEIGHT = Need("weights", "rms")
_DUPLICATES, _NORM = INDEX["row_dup"], INDEX["row_norm_max"]
_KINDS = ("Linear", "Conv", "RNN", "LSTM", "GRU", "Bilinear", "Multihead", "NonDynamically", "Lazy")
_SAVES, _STEPS, _GIVE_UP = 3, 20, 100
_ALIKE, _SMALL = 0.9, 0.03
_CHANCE = 3.0
_PULLED = 1.5  # times the gradient at the start: a run that leaves the place where it began
_FALLS = {"identical": 0.3, "zero": 0.1, "shrinking": 0.1, "growing": 0.3, "large": 0.3}
_MIN_ACTIVATIONS = 3
_REMEDIES = {
    "identical": ("Initialise at random: units that start alike get the same gradient for ever.",),
    "zero": ("Initialise hidden layers at random; only biases and last layers may start at 0.",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoorWeightInitialization(CheckedRule[Json]):
    """Fire when the first weights cannot be trained, and the loss agrees."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "INI001",
        "PoorWeightInitialization",
        Severity.ERROR,
        Tier.EVIDENCE,
        (
            WEIGHT,
            Need("gradients", "range"),
            Need("activations", "variance"),
            Need("losses", "value"),
        ),
        (
            "Kaiming initialisation for ReLU-like activations, Xavier for tanh and sigmoid.",
            "Put normalisation layers between the layers; scale residual branches down.",
            "Start recurrent matrices orthogonal.",
        ),
        "capture the collection weights from the first step; trainwarden.watch() does so",
        explains=("VanishingGradient", "DeadRelu", "UnchangedTensor", "LossNotDecreasing",
                  "InitialLoss", "AllZero", "TensorVariance", "LearningRateTooLow",
                  "LearningRateTooHigh", "ExplodingGradient", "SaturatedActivation"),
        sagemaker={"threshold": 10.0, "distribution_range": 0.001, "patience": 5, "steps": 10},
    )  # fmt: skip

    activation_inputs_regex: tuple[str, ...] = param(
        (), "Activations that SageMaker's meaning looks at; empty means all.", pattern=True
    )
    threshold: float | None = param(
        None, "Ratio of variances; given, SageMaker's meaning applies.", bounds=Bounds(gt=1)
    )
    distribution_range: float = param(
        0.001, "Range of a gradient that is too small, in SageMaker's meaning.",
        "loss units per parameter unit", bounds=Bounds(ge=0),
    )  # fmt: skip
    patience: int = param(5, "Steps the loss may stand, in SageMaker's meaning.", "steps",
                          bounds=Bounds(ge=1))  # fmt: skip
    steps: int = param(10, "Steps that SageMaker's meaning looks at.", "steps",
                       bounds=Bounds(ge=1))  # fmt: skip
    min_signal: float = param(0.01, "Signal that has shrunk.", bounds=Bounds(gt=0, lt=1))
    max_signal: float = param(20.0, "Signal that has grown.", bounds=Bounds(gt=1))
    max_scale: float = param(4.0, "Scale that is too large.", bounds=Bounds(gt=1))

    def start(self) -> Json:
        """Nothing has been seen."""
        return {"at": -1, "saves": 0, "zeros": 0, "suspects": [], "high": None, "pull": 0.0,
                "told": False, "best": None, "loss": begin()}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Weights of a training step."""
        return obs.mode is TRAIN and obs.captured("weights").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Look at the first weights; wait until the loss says whether they hurt."""
        if state["told"] or obs.mode is not TRAIN:
            return state, ()
        if self.threshold is not None:
            return self._sagemaker(state, obs, self.threshold)
        rows = obs.among(once(obs.layout, "initialised matrices", _matrices))
        if state["at"] < 0:
            if not rows.size:
                return state, ()
            state = {**state, "at": obs.step, "suspects": self._suspects(obs, rows),
                     "high": _high(obs), "pull": _pull(obs)}  # fmt: skip
        if skipped(obs):
            return state, ()
        zeros = state["zeros"] + 1 if _no_gradient(obs) else 0
        state = {**state, "saves": state["saves"] + 1, "zeros": zeros,
                 "loss": follow(state["loss"], obs)}  # fmt: skip
        for suspect in state["suspects"]:
            if self._hurts(suspect, state, obs):
                return {**state, "told": True, "suspects": []}, [self._finding(suspect, state, obs)]
        over = not state["suspects"] or obs.step - state["at"] > _GIVE_UP
        return ({**self.start(), "at": state["at"], "told": True} if over else state), ()

    def _sagemaker(
        self, state: Json, obs: Observation, ratio: float
    ) -> tuple[Json, Sequence[Finding]]:
        at = obs.step if state["at"] < 0 else state["at"]
        if obs.step - at >= self.steps:
            return {**self.start(), "at": at, "told": True}, ()
        best, found = first_signs(
            state["best"], obs, self.activation_inputs_regex,
            ratio=ratio, least=self.distribution_range, patience=self.patience,
        )  # fmt: skip
        told = found is not None
        return {**state, "at": at, "best": best, "told": told}, [found] if found else ()

    def _suspects(self, obs: Observation, rows: IntArray) -> list[Json]:
        """[kind, tensor, value, limit], most certain first."""
        stats, names, found = obs.stats[rows], obs.layout.names, list[Json]()
        if not finite(stats).all():
            return []
        scales = STATISTICS["rms"].compute(stats) * once(obs.layout, "fan in", _roots)[rows]
        hidden = rows[:-1]
        units = np.array([max(1, obs.layout.tensors[int(r)].shape[0]) for r in hidden])
        alike = obs.stats[hidden, _DUPLICATES] >= _ALIKE * np.maximum(units, 2)
        zero = scales[:-1] == 0
        same = alike & ~zero
        if same.any() and 2 * np.count_nonzero(same) >= hidden.size:
            name = names[int(hidden[np.flatnonzero(same)[0]])]
            found.append(["identical", name, float(np.count_nonzero(same)), 0.0])
        if zero.any():
            name = names[int(hidden[np.flatnonzero(zero)[0]])]
            found.append(["zero", name, float(np.count_nonzero(zero)), 0.0])
        signal, name = _signal(obs)
        if signal > self.max_signal:
            found.append(["growing", name, signal, self.max_signal])
        top = int(np.argmax(scales))
        if scales[top] > self.max_scale:
            found.append(["large", names[int(rows[top])], float(scales[top]), self.max_scale])
        if 0 < signal < self.min_signal:
            found.append(["shrinking", name, signal, self.min_signal])
        elif scales.size > 1 and 0 < (middle := float(np.median(scales))) < _SMALL:
            found.append(["shrinking", names[int(rows[0])], middle, _SMALL])
        return found

    def _hurts(self, suspect: Json, state: Json, obs: Observation) -> bool:
        kind, _, _, limit = suspect
        fallen, steps, saves = fall(state["loss"]), obs.step - state["at"], state["saves"]
        if kind in {"growing", "large"}:
            if bad_loss(obs):
                return True
            if state["high"] is not None:
                return bool(state["high"]) and saves > 1
        learns = fallen >= _FALLS[kind] or math.isnan(fallen)
        if kind == "zero":
            return state["zeros"] >= _SAVES and not learns
        if kind == "identical":
            return saves >= _SAVES and not learns
        leaves = limit == _SMALL and _pull(obs) > _PULLED * state["pull"] > 0
        return steps >= _STEPS and saves >= _SAVES and not (learns or leaves)

    def _finding(self, suspect: Json, state: Json, obs: Observation) -> Finding:
        kind, name, value, limit = suspect
        fallen = fall(state["loss"])
        start = state["loss"]["first"][0] if state["loss"]["first"] else math.nan
        loss = f"; the loss began at {start:.4g} and has lost {max(0.0, fallen):.0%} of it"
        what = {
            "identical": f"all units of {name} start with the same weights, in {value:.0f} hidden "
            "matrices",
            "zero": f"{value:.0f} hidden matrices start at 0, {name} the first of them, and no "
            "gradient reaches the weights",
            "growing": f"the activations grow {value:.3g} times from the first layer to {name} at "
            "the start",
            "large": f"{name} starts with a scale (RMS x √fan-in) of {value:.3g}, where 0.5 to 1.5 "
            "is usual",
            "shrinking": f"at the start of the run only {value:.2g} is left at {name} of what "
            "initialisation should keep near 1",
        }[kind]
        evidence = {
            "kind": kind,
            "also": [one[0] for one in state["suspects"] if one[0] != kind],
            "loss_at_start": rounded(start),
            "loss_fall": rounded(fallen),
        }
        message = what + (loss if math.isfinite(start) and math.isfinite(fallen) else "")
        name = name if name in obs.layout.row_of else ""
        remedies = _REMEDIES.get(kind, ()) + self.meta.remedies
        since, sure = state["at"], 0.9
        return Finding(obs.step, name, value, limit, message, min(since, obs.step), evidence,
                       remedies, confidence=sure)  # fmt: skip


def _matrices(layout: Layout) -> IntArray:
    rows = [
        row
        for row in weight_matrices(layout).tolist()
        if layout.tensors[row].kind.startswith(_KINDS) and math.prod(layout.tensors[row].shape) > 1
    ]
    return np.array(rows, dtype=np.int64)


def _roots(layout: Layout) -> FloatArray:
    """Square root of each row's fan-in, (R,)."""
    return np.array([math.sqrt(max(1, math.prod(t.shape[1:]))) for t in layout.tensors])


def _signal(obs: Observation) -> tuple[float, str]:
    """RMS of the last activation over that of the first, and the last's name; NaN if unknown."""
    rows = obs.captured("activations")  # in the order in which they were computed
    if rows.size < _MIN_ACTIVATIONS:
        return math.nan, ""
    values = STATISTICS["rms"].compute(obs.stats[rows])
    if not values[0] > 0 or not np.isfinite(values).all():
        return math.nan, ""
    return float(values[-1] / values[0]), obs.layout.names[int(rows[-1])]


def _pull(obs: Observation) -> float:
    """RMS of the first matrix's gradient; 0 if there is none."""
    rows = obs.among(gradient_matrices(obs.layout))
    pull = float(STATISTICS["rms"].compute(obs.stats[rows[:1]])[0]) if rows.size else 0.0
    return pull if math.isfinite(pull) else 0.0


def _high(obs: Observation) -> bool | None:
    """Whether the first loss is far above that of a guess; None where that is not known."""
    count, loss = choices(obs), main_loss(obs)
    if count <= 1 or loss is None:
        return None
    return loss[1] > _CHANCE * math.log(count)


def _no_gradient(obs: Observation) -> bool:
    rows = obs.among(gradient_matrices(obs.layout))
    if not rows.size:
        return False
    stats = obs.stats[rows]
    zero = (stats[:, INDEX["sum_abs"]] == 0) & (stats[:, 1:4].sum(axis=1) == 0)
    return bool(zero[0]) and bool(2 * np.count_nonzero(zero) >= rows.size)
