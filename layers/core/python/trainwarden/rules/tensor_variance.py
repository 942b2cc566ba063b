"""TNS001 TensorVariance: weights that have collapsed onto one value, or spread without end.

**Why it hurts.** A layer whose weights are all alike computes one thing; one whose weights are far
apart saturates or overflows what comes after it.

**How it is computed.** Over the weight matrices, embeddings apart, with v the variance of the
elements (unit: weight units squared) and v x fan-in its scale:

* ``spread``: v is above ``max_variance`` and ``growth`` times what it was at the first saved step
  at which it was not 0;
* ``collapsed``: v x fan-in is under ``min_scale`` and the ``growth``-th part of what it was.

Either must hold at three saved steps in a row that span ``min_steps`` steps, in a run that does not
learn: its loss has lost less than ``max_fall`` of its start. The kind is in the evidence as
``kind``. Told once.

With ``max_threshold`` or ``min_threshold`` given, SageMaker's meaning instead: any tensor of
``collection_names`` or ``tensor_regex`` (weights, if neither is given) of several elements
whose variance is above the one or below the other, once until it is back. SageMaker has no defaults
for these.

**Remedy.** Spread: lower the learning rate, clip gradients, add weight decay. Collapsed: lower
weight decay or L1; initialise at random.

**False alarms to expect.** Layers pruned to nothing in a run that does not learn.

**Missing data.** Tensors with NaN or infinity are NUM001's business.

**Source.** SageMaker Debugger's TensorVariance; limits of weights from DeepDiagnosis (ICSE 2022):
1e-5 and 10. Measured: no weight of 80 healthy runs passes a variance of 2.
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
from trainwarden.rules._facts import rounded
from trainwarden.rules._motion import bad_loss
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import (
    gathered,
    matching,
    measured,
    once,
    weight_matrices,
)
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS, finite

WEIGHT = Need("weights", "variance")
_SAVES = 3
_ROUNDED = 0.99  # what is near a limit is looked at closely
_NEAR = 4.0  # moments are about one of the elements, not about the mean
_SQUARES = INDEX["sum_d2"]
_FOLLOWED = 64  # matrices, evenly over the network; the state has to fit the job's record
_MAX_TENSORS = 500
_REMEDIES = {
    "spread": (
        "Lower the learning rate by a factor of 10.",
        "Clip gradients by norm.",
        "Add weight decay.",
    ),
    "collapsed": ("Lower weight decay or the L1 penalty.", "Initialise the layer at random."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorVariance(CheckedRule[Json]):
    """Fire when the variance of weights leaves all bounds."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "TNS001",
        "TensorVariance",
        Severity.WARNING,
        Tier.EVIDENCE,
        (
            WEIGHT,
            Need("activations", "variance"),
            Need("gradients", "variance"),
            Need("losses", "value"),
        ),
        tuple(text for one in _REMEDIES.values() for text in one),
        "capture the collection weights; trainwarden.watch() does so by default",
        explains=("LossNotDecreasing",),
        sagemaker={},
        required=("max_threshold", "min_threshold"),
    )

    collection_names: tuple[str, ...] = param((), "Collections that SageMaker's meaning looks at.")
    tensor_regex: tuple[str, ...] = param(
        (), "Tensors that SageMaker's meaning looks at.", pattern=True
    )
    max_threshold: float | None = param(
        None, "Largest variance; given, SageMaker's meaning applies.", "squared units",
        bounds=Bounds(ge=0),
    )  # fmt: skip
    min_threshold: float | None = param(
        None, "Least variance; given, SageMaker's meaning applies.", "squared units",
        bounds=Bounds(ge=0),
    )  # fmt: skip
    max_variance: float = param(10.0, "Variance of weights that are spread.", bounds=Bounds(gt=0))
    min_scale: float = param(
        1e-5, "Variance times fan-in of weights that have collapsed.", bounds=Bounds(gt=0)
    )
    growth: float = param(100.0, "Change since the first saved step.", bounds=Bounds(gt=1))
    min_steps: int = param(30, "Steps these must span.", "steps", bounds=Bounds(ge=0))
    max_fall: float = param(
        0.1, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """No variance has been seen."""
        return {"first": [], "count": 0, "since": -1, "told": False, "ill": {}, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """Weights of a training step."""
        return obs.mode is TRAIN and obs.captured("weights").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Compare with the first saved step, or with the limits given."""
        if self.max_threshold is not None or self.min_threshold is not None:
            return self._sagemaker(state, obs)
        rows = once(obs.layout, "followed matrices", _followed)
        there = obs.mode is TRAIN and 0 < rows.size == obs.among(rows).size
        if state["told"] or not there or bad_loss(obs):
            return state, ()
        state = {**state, "loss": follow(state["loss"], obs)}
        if len(state["first"]) != rows.size:
            first = [rounded(v) for v in _variances(obs, rows).tolist()]
            return {**state, "first": first, "count": 0, "since": -1}, ()
        if 0.0 in state["first"]:
            now = [rounded(v) for v in _variances(obs, rows).tolist()]
            state["first"] = [w or n for w, n in zip(state["first"], now, strict=True)]
        found = self._ill(state["first"], obs, rows)
        if found is None:
            state["count"], state["since"] = 0, -1
            return state, ()
        since = obs.step if state["since"] < 0 else state["since"]
        state = {**state, "count": state["count"] + 1, "since": since}
        ripe = state["count"] >= _SAVES and obs.step - since >= self.min_steps
        if not ripe or not fall(state["loss"]) < self.max_fall:
            return state, ()
        which, kind, value = found
        finding = self._finding(state, obs, (int(rows[which]), value), (which, kind))
        return {**state, "told": True, "first": []}, [finding]

    def _finding(
        self, state: Json, obs: Observation, what: tuple[int, float], found: tuple[int, str]
    ) -> Finding:
        (row, value), (which, kind) = what, found
        name, was, since = obs.layout.names[row], state["first"][which], state["since"]
        limit = self.max_variance if kind == "spread" else self.min_scale
        message = (
            f"the variance of {name} is {value:.3g} after a start of {was:.3g}, and the loss does "
            "not fall"
        )
        evidence = {"kind": kind, "at_start": was}
        return Finding(obs.step, name, value, limit, message, min(since, obs.step), evidence,
                       _REMEDIES[kind], confidence=0.8)  # fmt: skip

    def _ill(
        self, first: list[float | None], obs: Observation, rows: IntArray
    ) -> tuple[int, str, float] | None:
        """Position, kind and variance of the worst matrix, None if all are well."""
        least = once(obs.layout, ("least", self.min_scale), self._least)
        squares, n = obs.stats[:, _SQUARES][rows], obs.stats[:, 0][rows]  # never below variances
        if not (
            np.count_nonzero(squares > (_ROUNDED * self.max_variance) * n)
            or np.count_nonzero(squares < n * least)
        ):
            return None
        values = _variances(obs, rows)
        was = np.array(first, dtype=np.float64)  # None becomes NaN
        spread = (values > self.max_variance) & (values > self.growth * was)
        if spread.any():
            worst = int(np.argmax(np.where(spread, values, -1.0)))
            return worst, "spread", float(values[worst])
        fans = once(obs.layout, "fans of followed", _fans)
        collapsed = (values * fans < self.min_scale) & (values * self.growth < was)
        if not collapsed.any():
            return None
        worst = int(np.flatnonzero(collapsed)[0])
        return worst, "collapsed", float(values[worst])

    def _least(self, layout: Layout) -> FloatArray:
        """Mean square of each matrix under which a look at its variance is worth it."""
        found: FloatArray = _NEAR * self.min_scale / _ROUNDED * (1.0 / _fans(layout))
        return found

    def _sagemaker(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """SageMaker's meaning: any tensor beyond the limits, once until it is back."""
        chosen = self.collection_names or (() if self.tensor_regex else ("weights",))
        rows = obs.among(matching(obs.layout, chosen, self.tensor_regex))
        values = STATISTICS["variance"].compute(obs.stats[rows])
        top = math.inf if self.max_threshold is None else self.max_threshold
        low = -math.inf if self.min_threshold is None else self.min_threshold
        several = obs.stats[rows, 0] > 1  # one element has no variance
        beyond = np.flatnonzero(several & np.isfinite(values) & ((values > top) | (values < low)))
        ill = {k: v for k, v in state["ill"].items() if int(k) not in set(rows.tolist())}
        found = []
        for i in beyond[:_MAX_TENSORS].tolist():
            row, value = int(rows[i]), float(values[i])
            ill[str(row)] = 1
            if str(row) not in state["ill"]:
                name, high = obs.layout.names[row], value > top
                limit, word = (top, "above") if high else (low, "below")
                message = f"the variance of {name} is {value:.3g}, {word} {limit:g}"
                kind = "spread" if high else "collapsed"
                found.append(
                    Finding(obs.step, name, value, limit, message, obs.step, {"kind": kind},
                            _REMEDIES[kind])
                )  # fmt: skip
        return {**state, "ill": ill}, found


def _variances(obs: Observation, rows: IntArray) -> FloatArray:
    """Variances of the rows; NaN where one holds NaN or infinity."""
    stats, values = gathered(obs, rows), measured(obs, rows, "variance")
    return np.where((finite(stats) == stats[:, 0]) & np.isfinite(values), values, np.nan)


def _followed(layout: Layout) -> IntArray:
    rows = weight_matrices(layout)
    if rows.size <= _FOLLOWED:
        return rows
    chosen: IntArray = rows[np.linspace(0, rows.size - 1, _FOLLOWED).astype(np.int64)]
    return chosen


def _fans(layout: Layout) -> FloatArray:
    """Inputs of a unit of each matrix."""
    shapes = (layout.tensors[int(r)].shape for r in _followed(layout))
    return np.array([float(max(1, math.prod(shape[1:]))) for shape in shapes])
