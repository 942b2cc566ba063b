"""XGB001 TreeDepth: trees so deep that they remember rows instead of finding patterns.

**Why it hurts.** A tree with almost as many leaves as there are rows fits each row by itself; what
it learned does not hold for others, and each round costs more than the one before.

**How it is computed.** Of the trees of a saved round: *depth* is the largest number of edges from
the root to a leaf (unit: edges), *leaves* the largest number of leaves, *rows* those of the
training matrix. A round is ill if depth > ``max_depth`` and rows ÷ leaves < ``rows_per_leaf``
(rows), and the validation loss is more than ``max_ratio`` times the training loss. It fires after
``patience`` ill rounds in a row. Without a validation set nothing is said: deep trees alone are no
fault.

In the ``sagemaker`` profile: log2(largest node number of a tree), rounded down, > ``depth``, at
once.

**Remedy.** Smaller ``max_depth``; larger ``min_child_weight`` and ``gamma``; ``subsample``.

**False alarms to expect.** Interpolating on purpose, for example as one step of a larger model.

**Missing data.** Linear boosters have no trees: nothing is inspected.

**Source.** Depth 6 and 1 as ``min_child_weight`` are XGBoost's defaults, and its notes on
parameter tuning name both against overfitting. Fewer than 5 rows a leaf is under the smallest leaf
that CART implementations recommend (5, Breiman et al. 1984). ``depth`` 4 is SageMaker Debugger's,
and alarms on XGBoost's own default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import (
    EVAL,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss
from trainwarden.stats.catalog import INDEX

TREES = Need("trees", "value")
_NODE = "trees/Node"  # as recorded by SageMaker Debugger


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDepth(CheckedRule[Json]):
    """Fire when trees grow so deep that they remember single rows."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "XGB001",
        "TreeDepth",
        Severity.WARNING,
        Tier.EVIDENCE,
        (TREES, Need("losses", "value")),
        (
            "Lower max_depth: 3 to 6 is enough for most tables.",
            "Raise min_child_weight or gamma, so that a leaf needs more rows.",
            "Use subsample and colsample_bytree below 1, and early stopping.",
        ),
        "watch with trainwarden.XGBoostCallback(train=dtrain)",
        explains=("Overfit", "Overtraining"),
        sagemaker={"depth": 4},
    )

    depth: int | None = param(
        None,
        "Given, SageMaker's meaning: largest log2 of a node number.",
        "edges",
        bounds=Bounds(ge=1, le=64),
    )
    max_depth: int = param(
        8, "Depth that is never called too deep.", "edges", bounds=Bounds(ge=1, le=64)
    )
    rows_per_leaf: float = param(
        5.0, "A tree with fewer rows for each leaf remembers them.", "rows", bounds=Bounds(gt=0)
    )
    max_ratio: float = param(
        2.0, "Validation loss over training loss that is harmless.", bounds=Bounds(gt=1)
    )
    patience: int = param(3, "Saved rounds in a row.", "saved rounds", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No tree has been seen."""
        return {"count": 0, "since": -1, "loss": None, "trees": None, "fired": False}

    def inspects(self, obs: Observation) -> bool:
        """Say whether there are trees, ours or those that SageMaker Debugger recorded."""
        return bool(obs.scalars.get(TREES.collection)) or _recorded(obs) is not None

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Count ill rounds; one finding for each streak."""
        if self.depth is not None:
            return self._sagemaker(state, obs)
        if obs.mode is EVAL:
            return self._validated(state, obs)
        told = obs.scalars.get(TREES.collection)
        if not told or not _finite(told, "depth", "leaves", "samples"):
            return state, ()
        loss = main_loss(obs)
        shape = {name: float(told[name]) for name in ("depth", "leaves", "samples")}
        state = {**state, "trees": {**shape, "at": obs.step}, "loss": loss and loss[1]}
        deep = shape["depth"] > self.max_depth
        if deep and shape["samples"] < self.rows_per_leaf * shape["leaves"]:
            return state, ()
        return {**state, "count": 0, "since": -1, "fired": False}, ()

    def _validated(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Hold the validation loss against the training loss of the round before."""
        trees, loss = state["trees"], main_loss(obs)
        if trees is None or loss is None or state["loss"] is None:
            return state, ()
        ill = (
            trees["depth"] > self.max_depth
            and trees["samples"] < self.rows_per_leaf * trees["leaves"]
            and loss[1] > self.max_ratio * max(state["loss"], 0.0)
        )
        if not ill:
            return {**state, "count": 0, "since": -1, "fired": False}, ()
        since = trees["at"] if state["count"] == 0 else state["since"]
        state = {**state, "count": state["count"] + 1, "since": since}
        if state["fired"] or state["count"] < self.patience:
            return state, ()
        return {**state, "fired": True}, [self._finding(obs, trees, loss[1], state)]

    def _finding(self, obs: Observation, trees: Json, validation: float, state: Json) -> Finding:
        rows = trees["samples"] / max(trees["leaves"], 1.0)
        message = (
            f"trees are {trees['depth']:.0f} deep with {trees['leaves']:.0f} leaves for "
            f"{trees['samples']:.0f} rows ({rows:.1f} rows a leaf) since round {state['since']}, "
            f"and the validation loss {validation:.3g} is "
            f"{validation / max(state['loss'], 1e-300):.3g} x the training loss"
        )
        evidence = {
            "depth": trees["depth"],
            "leaves": trees["leaves"],
            "rows": trees["samples"],
            "training_loss": state["loss"],
            "validation_loss": validation,
        }
        return Finding(
            obs.step, "", trees["depth"], float(self.max_depth), message, state["since"], evidence
        )

    def _sagemaker(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        told = obs.scalars.get(TREES.collection, {})
        recorded = _recorded(obs)
        largest = told.get("largest_node", math.nan) if recorded is None else recorded
        limit = float(self.depth or 0)
        # A tree of depth d has nodes up to 2^(d+1) - 2: the whole part of the logarithm is d.
        found = math.floor(math.log2(largest)) if math.isfinite(largest) and largest >= 1 else 0
        if not found > limit:
            return {**state, "fired": False}, ()
        if state["fired"]:
            return state, ()
        message = f"a tree has a node {largest:.0f}, so a depth of {found}, over {limit:g}"
        value = float(found)
        return {**state, "fired": True}, [Finding(obs.step, "", value, limit, message, obs.step)]


def _recorded(obs: Observation) -> float | None:
    """Return the largest node number of a recorded tensor, None if there is none."""
    row = obs.layout.row_of.get(_NODE, -1)
    if row < 0 or row >= obs.stats.shape[0] or math.isnan(obs.stats[row, 0]):
        return None
    return float(obs.stats[row, INDEX["max"]])


def _finite(told: object, *names: str) -> bool:
    return isinstance(told, dict) and all(math.isfinite(told.get(name, math.nan)) for name in names)
