"""The activation function at the model's output: what range its outputs cannot leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from trainwarden.model import Collection, IntArray, Layout, Observation
from trainwarden.rules._selection import here, once
from trainwarden.stats.catalog import INDEX

_MIN, _MAX = INDEX["min"], INDEX["max"]
RANGES: Mapping[str, tuple[float, float]] = {
    "Hardsigmoid": (0.0, 1.0),
    "LogSigmoid": (-math.inf, 0.0),
    "ReLU": (0.0, math.inf),
    "ReLU6": (0.0, 6.0),
    "Sigmoid": (0.0, 1.0),
    "Softplus": (0.0, math.inf),
    "Softsign": (-1.0, 1.0),
    "Tanh": (-1.0, 1.0),
}


class Bounded(NamedTuple):
    """The last activation, whose output is the model's: ``row`` in the layout, class, range."""

    row: int
    kind: str
    low: float
    high: float


def output_activation(obs: Observation) -> Bounded | None:
    """Return the bounded activation that makes the model's output; None if there is none.

    It lies behind all weights, and its smallest and largest element are those of an output: what
    is scaled or shifted after it is not bounded by it.
    """
    rows = here(obs, once(obs.layout, "last activations", _last))
    if not rows.size:
        return None
    row = int(rows[-1])
    ends = obs.stats[row, _MIN], obs.stats[row, _MAX]
    outputs = obs.captured(Collection.OUTPUTS.value)
    if not any((obs.stats[o, _MIN], obs.stats[o, _MAX]) == ends for o in outputs.tolist()):
        return None
    kind = obs.layout.tensors[row].kind
    return Bounded(row, kind, *RANGES[kind])


def _last(layout: Layout) -> IntArray:
    """Rows of bounded activations behind all weights; the deepest one is last."""
    tensors = layout.tensors
    deepest = max((t.depth for t in tensors if t.collection in {"weights", "biases"}), default=-1)
    rows = layout.rows(Collection.ACTIVATIONS.value)
    behind = sorted(
        (tensors[row].depth, row) for row in rows.tolist() if tensors[row].depth > deepest
    )
    found: IntArray = rows[:0]
    if behind and tensors[behind[-1][1]].kind in RANGES:
        found = rows[rows == behind[-1][1]]
    return found
