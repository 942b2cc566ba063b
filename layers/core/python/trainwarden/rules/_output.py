"""The activation function at the model's output: what range its outputs cannot leave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from trainwarden.model import IntArray, Layout, Observation
from trainwarden.rules._selection import once
from trainwarden.stats.catalog import INDEX

_MIN, _MAX = INDEX["min"], INDEX["max"]
_FILLED = 0.7  # of the output's range
_ROUNDING = 1e-2  # autocast rounds what goes into the loss
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
    """The last activation, whose output is the model's.

    ``row`` is that of the layout, ``kind`` its class, ``low`` and ``high`` what it cannot leave,
    ``least`` and ``most`` its smallest and largest element at this step.
    """

    row: int
    kind: str
    low: float
    high: float
    least: float
    most: float

    def feeds(self, facts: Mapping[str, float]) -> bool:
        """Say whether a loss function's input is this output: it fills most of its range.

        Other heads and similarities of embeddings have ranges of their own; a loss that looks at a
        sample, or at chosen columns, sees nearly all of it.
        """
        least, most = facts.get("input_min", math.nan), facts.get("input_max", math.nan)
        room = _ROUNDING * max(abs(self.least), abs(self.most))
        within = self.least - room <= least and most <= self.most + room
        return within and most - least >= _FILLED * (self.most - self.least) - room


def output_activation(obs: Observation) -> Bounded | None:
    """Return the bounded activation that makes the model's output; None if there is none.

    It lies behind all weights, and its smallest and largest element are those of an output: what
    is scaled or shifted after it is not bounded by it.
    """
    rows = obs.among(once(obs.layout, "last activations", _last))
    if not rows.size:
        return None
    row = int(rows[-1])
    ends = obs.stats[row, _MIN], obs.stats[row, _MAX]
    outputs = obs.captured("outputs")
    if not any((obs.stats[o, _MIN], obs.stats[o, _MAX]) == ends for o in outputs.tolist()):
        return None
    kind = obs.layout.tensors[row].kind
    return Bounded(row, kind, *RANGES[kind], *(float(end) for end in ends))


def _last(layout: Layout) -> IntArray:
    """Rows of bounded activations behind all weights; the deepest one is last."""
    tensors = layout.tensors
    deepest = max((t.depth for t in tensors if t.collection in {"weights", "biases"}), default=-1)
    rows = layout.rows("activations")
    behind = sorted(
        (tensors[row].depth, row) for row in rows.tolist() if tensors[row].depth > deepest
    )
    found: IntArray = rows[:0]
    if behind and tensors[behind[-1][1]].kind in RANGES:
        found = rows[rows == behind[-1][1]]
    return found
