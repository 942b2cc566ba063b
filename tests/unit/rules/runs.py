"""Builds observations from arrays, as the hook would, and folds rules over them through JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwarden.model import (
    Channels,
    Finding,
    Json,
    Layout,
    Mode,
    Observation,
    Rule,
    TensorInfo,
)
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.reductions import EMPTY_ROW, channel_columns, row

NAN, INF = float("nan"), float("inf")
FACTS: dict[str, dict[str, float]] = {  # what the hook says of a sound step beside the tensors
    "optimizer": {
        "lr_0": 0.1,
        "train_mode": 1.0,
        "adaptive_0": 0.0,
        "weight_decay_0": 0.0,
        "momentum_0": 0.9,
        "eps_0": 1e-8,
        "grad_norm": 0.4,
        "clip_limit": 1.0,
    },
    "loop": {
        "gradients_carried": 0.0,
        "backward_passes": 1.0,
        "stepped": 1.0,
        "parameters": 6.0,
        "parameters_without_optimizer": 0.0,
        "parameters_without_gradient": 0.0,
        "optimizer_tensors": 6.0,
        "optimizer_tensors_foreign": 0.0,
        "batchnorms": 1.0,
        "batchnorms_in_eval": 0.0,
        "dropouts": 0.0,
        "dropouts_in_eval": 0.0,
        "validation_in_training_mode": 0.0,
    },
    "objective": {
        "cross_entropy.classes": 10.0,
        "cross_entropy.rows_sum_to_one": 0.0,
        "cross_entropy.log_rows_sum_to_one": 0.0,
        "cross_entropy.inside_unit": 0.1,
        "cross_entropy.broadcast": 0.0,
        "cross_entropy.impossible_targets": 0.0,
        "cross_entropy.target_min": 0.0,
        "cross_entropy.target_max": 9.0,
        "cross_entropy.accuracy": 0.7,
    },
    "batch": {
        "input/0.samples": 64.0,
        "input/0.features": 4.0,
        "input/0.mean": 0.0,
        "input/0.std": 1.0,
        "input/0.feature_mean_max": 0.1,
        "input/0.feature_std_max": 1.1,
        "input/0.feature_std_min": 0.9,
        "input/0.constant_features": 0.0,
        "input/0.duplicated_features": 0.0,
        "input/0.correlation_max": 0.3,
        "input/0.shift": 0.1,
        "input/0.seen": 64.0,
        "input/1.mean": 0.0,
        "input/1.seen": 64.0,
        "output/0.batch_spread": 0.5,
    },
    "trees": {"depth": 3.0, "leaves": 8.0, "largest_node": 14.0, "samples": 320.0},
    "feature_importance": {
        **{f"{kind}/{name}": 0.25 for kind in ("weight", "total_gain") for name in "abcd"},
        "weight/": 4.0,
        "total_gain/": 4.0,
    },
    "window": {"steps": 1.0, "nonfinite_losses": 0.0, "clipped": 0.0},
}


def tensor(
    name: str,
    collection: str,
    shape: tuple[int, ...] = (4, 4),
    *,
    kind: str = "Linear",
    depth: int = -1,
    trainable: bool = True,
) -> TensorInfo:
    return TensorInfo(name, collection, shape, "float32", "", kind, depth, trainable)


def matrices(*names: str) -> tuple[TensorInfo, ...]:
    """Weight matrices in forward order and their gradients."""
    weights = [tensor(n, "weights", depth=i) for i, n in enumerate(names)]
    return (
        *weights,
        *(tensor(f"gradient/{n}", "gradients", depth=i) for i, n in enumerate(names)),
    )


class Script:
    """A run written down step by step; remembers values, so that updates are known."""

    def __init__(self, *tensors: TensorInfo) -> None:
        self.layout = Layout(tensors)
        self._previous: dict[str, npt.NDArray[np.float32]] = {}

    def step(
        self,
        step: int,
        values: Mapping[str, npt.ArrayLike] | None = None,
        *,
        mode: Mode = Mode.TRAIN,
        time: float | None = None,
        loss: float | None = None,
        scalars: Mapping[str, Mapping[str, float]] | None = None,
        channels: Mapping[str, Channels] | None = None,
        labels: Mapping[str, Mapping[int, int]] | None = None,
        flags: int = 0,
    ) -> Observation:
        stats = np.tile(EMPTY_ROW, (len(self.layout.tensors), 1))
        for name, value in (values or {}).items():
            where = self.layout.row_of[name]
            array = np.array(
                np.broadcast_to(value, self.layout.tensors[where].shape), dtype=np.float32
            )
            stats[where] = row(array, dtype="float32", previous=self._previous.get(name))
            stats[where, INDEX["flags"]] = flags
            self._previous[name] = array
        for name, activity in (channels or {}).items():
            where = self.layout.row_of[name]
            if np.isnan(stats[where, 0]):
                stats[where] = row(np.ones(4, np.float32), dtype="float32")
            channel_columns(stats[where], activity)
        numbers = {k: dict(v) for k, v in (scalars or {}).items()}
        if loss is not None:
            numbers.setdefault("losses", {})["loss"] = loss
        at = 1e9 + step if time is None else time
        return Observation(
            step, mode, step, at, self.layout, stats, numbers, channels or {}, labels or {}
        )


def losses(values: Iterable[float], *, every: int = 1, **more: Any) -> list[Observation]:
    """A run of which only the training loss is known."""
    script = Script()
    return [script.step(i * every, loss=v, **more) for i, v in enumerate(values)]


def fold(
    rule: Rule[Any], run: Sequence[Observation], state: Json = None
) -> tuple[Json, list[Finding]]:
    """Fold ``run``; the state goes through JSON after each step and must survive it unchanged."""
    state = rule.start() if state is None else state
    found: list[Finding] = []
    for obs in run:
        before = copy.deepcopy(state)
        after, new = rule.advance(state, obs)
        assert state == before, "a rule must not change the state it was given"
        state = json.loads(json.dumps(after, allow_nan=False))
        assert state == after, "a state must survive JSON"
        found += new
    return state, found


def fired(rule: Rule[Any], run: Sequence[Observation]) -> list[int]:
    """Steps at which ``rule`` fires."""
    return [finding.step for finding in fold(rule, run)[1]]
