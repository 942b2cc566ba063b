"""TNS002 AllZero: a tensor that should carry something holds nothing but zeros.

**Why it hurts.** A layer that outputs 0 passes nothing on, one whose gradient is 0 does not learn.

**How it is computed.** The share of zeros of each tensor (unit: %). By default it looks at outputs
of activation functions other than ReLU and its kin (ACT001's business) and at gradients of weight
matrices while those of others are not 0. It says, as information, that a tensor was 0 throughout
at ``min_saves`` saved steps in a row that span ``min_steps`` steps, in a run whose loss has lost
less than ``max_fall`` of its start. Once per tensor. Where half of them are 0, or the first
gradient, it is GRD001's or INI001's business.

With ``threshold``, ``collection_names`` or ``tensor_regex`` given, SageMaker's meaning instead: any
such tensor whose share of zeros reaches ``threshold`` per cent, once until it recovers. SageMaker
asks for a collection or a pattern.

**Remedy.** Follow the tensor back to where it becomes 0: a mask, a product with 0, an index that
selects nothing, a branch that is never taken.

**False alarms to expect.** Experts and branches that are rarely taken, in runs that do not learn.

**Missing data.** Empty tensors and those not captured are passed over, and so are steps that
GradScaler skipped. At most 200 tensors are followed at a time.

**Source.** SageMaker Debugger's AllZero (100 %).
"""

from __future__ import annotations

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
from trainwarden.rules._facts import skipped
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import gathered, gradient_matrices, matching
from trainwarden.stats.catalog import INDEX

GRADIENT = Need("gradients", "zero_fraction")
_ZERO, _CHANNELS = INDEX["n_zero"], INDEX["ch_n"]
_MAX_TENSORS = 200
_PERCENT = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllZero(CheckedRule[Json]):
    """Say that a tensor is all zeros."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "TNS002",
        "AllZero",
        Severity.INFO,
        Tier.EVIDENCE,
        (
            GRADIENT,
            Need("activations", "zero_fraction"),
            Need("weights", "zero_fraction"),
            Need("losses", "value"),
        ),
        (
            "Follow the tensor back to where it becomes 0: a mask, a product with 0, an index.",
            "Check that the branch it belongs to is taken at all.",
        ),
        "capture the collections gradients and activations; trainwarden.watch() does so",
        sagemaker={"threshold": 100.0},
        required=("collection_names", "tensor_regex"),
    )

    collection_names: tuple[str, ...] = param((), "Given, SageMaker's meaning for these.")
    tensor_regex: tuple[str, ...] = param((), "Given, SageMaker's meaning for these.", pattern=True)
    threshold: float | None = param(
        None, "Share of zeros; given, SageMaker's meaning applies.", "%",
        bounds=Bounds(gt=0, le=100),
    )  # fmt: skip
    min_saves: int = param(10, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    min_steps: int = param(100, "Steps these must span.", "steps", bounds=Bounds(ge=0))
    max_fall: float = param(
        0.05, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing is zero."""
        return {"zero": {}, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """Gradients of a training step."""
        return obs.mode is TRAIN and obs.captured("gradients").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend the streak of each tensor that is all zeros."""
        if self.threshold is not None or self.collection_names or self.tensor_regex:
            return self._sagemaker(state, obs)
        if obs.mode is not TRAIN or skipped(obs):
            return state, ()
        state = {**state, "loss": follow(state["loss"], obs)}
        full = np.count_nonzero(obs.stats[:, _ZERO] >= obs.stats[:, 0])  # empty ones, too
        zero = [*_gradients(obs), *_activations(obs)] if full else []
        if not zero and not state["zero"]:
            return state, ()
        fallen = fall(state["loss"])
        kept: dict[str, Json] = {}
        found: list[Finding] = []
        for row in zero[:_MAX_TENSORS]:
            since, count, told = state["zero"].get(str(row)) or [obs.step, 0, False]
            ripe = count + 1 >= self.min_saves and obs.step - since >= self.min_steps
            if ripe and not told and fallen < self.max_fall:
                name = obs.layout.names[row]
                message = (
                    f"{name} has held nothing but zeros at {count + 1} saved steps since step "
                    f"{since}"
                )
                found.append(Finding(obs.step, name, _PERCENT, _PERCENT, message,
                                     min(since, obs.step), confidence=0.7))  # fmt: skip
                told = True
            kept[str(row)] = [since, count + 1, told]
        return {**state, "zero": kept}, found

    def _sagemaker(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """SageMaker's meaning: any tensor at the threshold, once until it recovers."""
        limit = _PERCENT if self.threshold is None else self.threshold
        chosen = self.collection_names or (() if self.tensor_regex else ("gradients",))
        rows = obs.among(matching(obs.layout, chosen, self.tensor_regex))
        stats = obs.stats[rows]
        shares = _PERCENT * stats[:, _ZERO] / np.maximum(stats[:, 0], 1.0)
        ill = np.flatnonzero((shares >= limit) & (stats[:, 0] > 0))
        there = set(rows.tolist())
        kept = {k: v for k, v in state["zero"].items() if int(k) not in there}
        found = []
        for i in ill[:_MAX_TENSORS].tolist():
            row, share = int(rows[i]), float(shares[i])
            kept[str(row)] = [obs.step, 1, True]
            if str(row) not in state["zero"]:
                name = obs.layout.names[row]
                message = f"{share:.3g} % of {name} are zeros"
                found.append(Finding(obs.step, name, share, limit, message, obs.step))
        return {**state, "zero": kept}, found


def _gradients(obs: Observation) -> list[int]:
    """Rows of matrices in the middle whose gradient is 0 while that of most others is not."""
    rows = obs.among(gradient_matrices(obs.layout))
    if not rows.size:
        return []
    stats = gathered(obs, rows)
    zero = (stats[:, _ZERO] >= stats[:, 0]) & (stats[:, 0] > 0)
    if zero[0] or 2 * np.count_nonzero(zero) >= rows.size:
        return []
    found: list[int] = rows[zero].tolist()
    return found


def _activations(obs: Observation) -> list[int]:
    rows = obs.captured("activations")
    if not rows.size:
        return []
    stats = gathered(obs, rows)
    zero = (stats[:, _ZERO] >= stats[:, 0]) & (stats[:, 0] > 0)
    if 2 * np.count_nonzero(zero) >= rows.size:
        return []
    zero &= np.isnan(stats[:, _CHANNELS])
    found: list[int] = rows[zero].tolist()
    return found
