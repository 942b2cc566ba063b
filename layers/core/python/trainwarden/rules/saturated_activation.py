"""ACT002 SaturatedActivation: tanh and sigmoid units stand at the ends of their range.

**Why it hurts.** There the slope is next to 0: no gradient passes, and the layers below learn
nothing from any example.

**How it is computed.** The hook counts outputs of tanh beyond ±0.96 and of sigmoid beyond 0.02 and
0.98, where the slope is under 8 % of its largest (unit: share of the elements). By kind, which is
in the evidence as ``kind``:

* ``from_start``: a hidden layer whose share is at least ``share_at_start`` from the first saved
  step on, in a run that has lost less than half of its starting loss: inputs or weights are too
  large;
* ``stuck``: a hidden layer whose share is at least ``share``, in a run that has lost less than a
  tenth of it;
* ``output``: the output layer, share at least ``share_at_start``, in a run that has lost less than
  0.3 of it and whose gradients have shrunk to a tenth of the first ones: the targets lie beyond
  the range.

Each at ``min_saves`` saved steps in a row that span ``min_steps`` steps, or at three that span five
times as many; twice as many for
``stuck``. Once per layer, until it recovers.

With ``threshold_layer`` given, SageMaker's meaning instead: at one step, more than that per cent of
the elements of a layer beyond the bounds. SageMaker's windows lie on the inputs of the function
(±9.5 and -23 … 17) and count a node over the batch; the hook's bounds on the outputs stand for
them.

**Remedy.** Standardise the inputs; Xavier initialisation; ReLU-like activations; for an output
layer a linear one, or targets scaled into its range.

**False alarms to expect.** Binary codes that are meant to stand at ±1, before they learn.

**Missing data.** Methods of tensors (``x.tanh()``) are not seen and not judged. NaN
(NUM001's business) counts as not saturated. Gates inside LSTM and GRU are not seen.

**Source.** Glorot and Bengio (2010); DeepDiagnosis (ICSE 2022) has |x| ≥ 5 for half of the inputs.
Measured: at the first step no hidden layer of 80 healthy runs has a share above 0.35, raw tables
and pixels give 0.7 to 1. Later healthy layers reach 0.9, in runs that have learned.
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
from trainwarden.rules._facts import rounded, several_optimizers
from trainwarden.rules._motion import gradient_norm
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import matching, once, weight_matrices
from trainwarden.stats.catalog import INDEX

SATURATED = Need("activations", "saturated_fraction")
_LOW, _HIGH = INDEX["n_sat_lo"], INDEX["n_sat_hi"]
_JUDGED = frozenset({"Tanh", "Sigmoid"})  # hard ones stand at their ends by design
_FALLS = {"from_start": 0.5, "stuck": 0.1, "output": 0.3}
_SHRUNK = 0.1
_FEWEST, _LONG = 3, 5
_MAX_LAYERS = 64  # the state has to fit the job's record
_REMEDIES = {
    "output": (
        "Use a linear output layer, or scale the targets into the range of the activation.",
        "With BCELoss check that the targets lie in [0, 1].",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturatedActivation(CheckedRule[Json]):
    """Fire when tanh or sigmoid layers saturate and the run suffers from it."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "ACT002",
        "SaturatedActivation",
        Severity.WARNING,
        Tier.EVIDENCE,
        (SATURATED, Need("gradients", "l2"), Need("losses", "value")),
        (
            "Standardise the inputs to mean 0 and standard deviation 1.",
            "Initialise with Xavier's method; lower the learning rate.",
            "Use ReLU-like activations in hidden layers, or normalise in front of them.",
        ),
        "capture the collection activations; the model must have Tanh or Sigmoid modules",
        explains=("VanishingGradient", "LossNotDecreasing", "UnchangedTensor", "TensorVariance"),
        sagemaker={"threshold_layer": 50.0},
    )

    tensor_regex: tuple[str, ...] = param((), "Look only at matching activations.", pattern=True)
    threshold_layer: float | None = param(
        None,
        "Share of a layer that is too much; given, SageMaker's meaning applies.",
        "%",
        bounds=Bounds(ge=0, lt=100),
    )
    share_at_start: float = param(
        0.6, "Saturated share of a hidden layer from the first step on.", bounds=Bounds(gt=0, le=1)
    )
    share: float = param(0.9, "Saturated share of a layer later.", bounds=Bounds(gt=0, le=1))
    min_saves: int = param(5, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    min_steps: int = param(10, "Steps these must span.", "steps", bounds=Bounds(ge=0))

    def start(self) -> Json:
        """No layer has been seen."""
        return {"at": -1, "layers": {}, "norms": [], "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """A training step with the outputs of activation functions."""
        return obs.mode is TRAIN and obs.captured("activations").size > 0

    def _rows(self, obs: Observation) -> IntArray:
        rows = obs.among(once(obs.layout, "saturating layers", _saturating))
        if self.tensor_regex and rows.size:
            rows = rows[np.isin(rows, matching(obs.layout, (), self.tensor_regex))]
        return rows

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend or end each layer's streak."""
        if obs.mode is not TRAIN:
            return state, ()
        rows = self._rows(obs)
        if not rows.size:
            return state, ()
        beyond = obs.stats[rows, _LOW] + obs.stats[rows, _HIGH]  # NaN without bounds
        shares = beyond / np.maximum(obs.stats[rows, 0], 1.0)
        if self.threshold_layer is not None:
            return self._sagemaker(state, obs, rows, shares * 100.0)
        high, norms = shares >= min(self.share, self.share_at_start), state["norms"]
        norm = gradient_norm(obs) if not norms or high.any() else 0.0
        if 0 < norm < math.inf:
            norms = [norms[0] if norms else norm, norm]
        at = obs.step if state["at"] < 0 else state["at"]
        state = {**state, "at": at, "norms": norms, "loss": follow(state["loss"], obs)}
        layers: dict[str, Json] = {}
        found: list[Finding] = []
        for row, share in zip(rows[high].tolist(), shares[high].tolist(), strict=True):
            name = obs.layout.names[row]
            if len(layers) < _MAX_LAYERS:
                layers[name], finding = self._layer(state, obs, row, share)
                found += [finding] if finding else []
        return {**state, "layers": layers}, found

    def _layer(
        self, state: Json, obs: Observation, row: int, share: float
    ) -> tuple[Json, Finding | None]:
        """A layer is [first step of the streak, saved steps, those at the full share, told]."""
        name = obs.layout.names[row]
        since, count, full, told = state["layers"].get(name) or [obs.step, 0, 0, False]
        count, full = count + 1, full + 1 if share >= self.share else 0
        if told:
            return [since, count, full, told], None
        kind = self._kind(state, obs, row, [since, count, full])
        if not kind:
            return [since, count, full, told], None
        return [since, count, full, True], self._finding(state, obs, row, (share, since, kind))

    def _kind(self, state: Json, obs: Observation, row: int, layer: Json) -> str:
        since, count, full = layer
        steps, fallen = obs.step - since, fall(state["loss"])
        soon = count >= _FEWEST and steps >= _LONG * self.min_steps  # saved steps far apart
        if steps < self.min_steps or not (count >= self.min_saves or soon):
            return ""
        if obs.layout.tensors[row].depth > once(obs.layout, "last matrix", _last_depth):
            norms = state["norms"]
            shrunk = len(norms) > 1 and norms[1] <= _SHRUNK * norms[0]
            ill = shrunk and not several_optimizers(obs)
            kind = "output" if ill else ""
        elif since == state["at"]:
            kind = "from_start"
        else:
            long = full >= 2 * self.min_saves and steps >= 2 * self.min_steps
            kind = "stuck" if long else ""
        return kind if kind and fallen < _FALLS[kind] else ""

    def _finding(
        self, state: Json, obs: Observation, row: int, what: tuple[float, int, str]
    ) -> Finding:
        share, since, kind = what
        name, function = obs.layout.names[row], obs.layout.tensors[row].kind
        fallen = fall(state["loss"])
        stats = obs.stats[row]
        where = {
            "from_start": "since the first steps",
            "stuck": f"since step {since}",
            "output": f"since step {since}, the output layer's",
        }[kind]
        message = (
            f"{share:.0%} of {name} stand at the ends of {function} {where}, and the loss has "
            f"fallen by {max(0.0, fallen):.0%}"
        )
        evidence = {
            "kind": kind,
            "low": rounded(float(stats[_LOW] / stats[0])),
            "high": rounded(float(stats[_HIGH] / stats[0])),
            "loss_fall": rounded(fallen),
            "gradient_norms": state["norms"],
        }
        limit = self.share if kind == "stuck" else self.share_at_start
        remedies = _REMEDIES.get(kind, ())
        return Finding(
            obs.step, name, share, limit, message, since, evidence, remedies, confidence=0.9
        )

    def _sagemaker(
        self,
        state: Json,
        obs: Observation,
        rows: IntArray,
        shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    ) -> tuple[Json, Sequence[Finding]]:
        """SageMaker's meaning: each layer over the threshold, at once, until it recovers."""
        limit, layers, found = self.threshold_layer or 0.0, dict[str, Json](), []
        high = shares > limit
        for row, share in zip(rows[high].tolist(), shares[high].tolist(), strict=True):
            name = obs.layout.names[row]
            if len(layers) >= _MAX_LAYERS:
                break
            layers[name] = 1
            if name not in state["layers"]:
                message = f"{share:.0f} % of {name} are saturated, more than {limit:g} %"
                found.append(Finding(obs.step, name, share, limit, message, obs.step))
        return {**state, "layers": layers}, found


def _saturating(layout: Layout) -> IntArray:
    rows = layout.rows("activations")
    judged = [layout.tensors[int(r)].kind in _JUDGED for r in rows]
    return rows[np.array(judged, dtype=np.bool_)]


def _last_depth(layout: Layout) -> int:
    rows = weight_matrices(layout)
    return layout.tensors[int(rows[-1])].depth if rows.size else 2**31
