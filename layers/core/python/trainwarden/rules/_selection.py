"""Which rows of the layout a rule looks at, worked out once per layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np

from trainwarden.model import FloatArray, IntArray, Layout, Observation
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS

T = TypeVar("T")
_MOMENTS = slice(INDEX["shift"], INDEX["sum_d2"] + 1)  # shift, sum_d, sum_d2: about ``shift``


def once(layout: Layout, key: Hashable, make: Callable[[Layout], T]) -> T:
    """Return ``make(layout)``, computed once per layout object and ``key``.

    It is kept with the layout itself, as its own cached properties are.
    """
    made = layout.made
    if key not in made:
        made[key] = make(layout)
    found: T = made[key]
    return found


def matching(layout: Layout, collections: tuple[str, ...], patterns: tuple[str, ...]) -> IntArray:
    """Rows of the union of ``collections`` and of names matched by ``patterns``, ascending.

    A pattern matches from the start of the name, as in SageMaker Debugger.
    """

    def make(layout: Layout) -> IntArray:
        compiled = [re.compile(p) for p in patterns]
        wanted = set(collections)
        rows = [
            row
            for row, tensor in enumerate(layout.tensors)
            if str(tensor.collection) in wanted or any(p.match(tensor.name) for p in compiled)
        ]
        return np.array(rows, dtype=np.int64)

    return once(layout, ("matching", collections, patterns), make)


def weight_matrices(layout: Layout) -> IntArray:
    """Trainable weights with at least two dimensions that are no embedding, from input to output.

    Embedding tables get gradients in the rows of the batch's tokens only; scales and shifts of
    normalisation layers follow other laws than matrices.
    """
    return once(layout, "weight matrices", _weight_matrices)


def gradient_matrices(layout: Layout) -> IntArray:
    """Gradients of the weight matrices, from input to output."""
    return once(layout, "gradient matrices", _gradient_matrices)


def _weight_matrices(layout: Layout) -> IntArray:
    return _matrices(layout, "weights")


def _gradient_matrices(layout: Layout) -> IntArray:
    return _matrices(layout, "gradients")


def _matrices(layout: Layout, collection: str) -> IntArray:
    rows = [
        (layout.tensors[row].depth, row)
        for row in layout.rows(collection).tolist()
        if len(layout.tensors[row].shape) > 1
        and layout.tensors[row].trainable
        and not layout.tensors[row].kind.startswith("Embedding")
    ]
    return np.array([row for _, row in sorted(rows)], dtype=np.int64)


def gradient_of(layout: Layout) -> IntArray:
    """Row of the gradient of each row's tensor, (R,) int64; -1 where there is none."""
    return once(layout, "gradient of", _gradient_of)


def _gradient_of(layout: Layout) -> IntArray:
    row_of = layout.row_of
    return np.array([row_of.get(f"gradient/{name}", -1) for name in layout.names], dtype=np.int64)


def clean(obs: Observation) -> bool:
    """Say whether no element of any captured tensor is NaN or infinite, once for all rules."""
    known: bool | None = obs.memo.get("clean")
    if known is None:
        stats, count = obs.stats, np.count_nonzero
        known = not (count(stats[:, 1]) or count(stats[:, 2]) or count(stats[:, 3]))
        known = known or not count(stats[:, 1:4] > 0)  # NaN where a row was not captured
        obs.memo["clean"] = known
    return known


def squares(obs: Observation) -> FloatArray:
    """Sum of x² of each row, (R,) float64, once for all rules; NaN or below 0 where unknown."""
    known: FloatArray | None = obs.memo.get("squares")
    if known is None:
        known = obs.memo["squares"] = _squares(obs.stats)
    return known


@np.errstate(all="ignore")
def _squares(stats: FloatArray) -> FloatArray:
    moments = stats[:, _MOMENTS].T.copy()  # rows lie apart in memory
    shift, deviation, square = moments[0], moments[1], moments[2]
    found: FloatArray = square + shift * (2.0 * deviation + shift * stats[:, 0])
    return found


def gathered(obs: Observation, rows: IntArray) -> FloatArray:
    """Statistics of ``rows``, (T, 32) float64, once for all rules; not to be written into."""
    key = ("gathered", id(rows))
    known: tuple[IntArray, FloatArray] | None = obs.memo.get(key)
    if known is None:
        known = obs.memo[key] = (rows, obs.stats.take(rows, axis=0))
    return known[1]


def measured(obs: Observation, rows: IntArray, name: str) -> FloatArray:
    """One statistic of ``rows``, (T,) float64, once for all rules; not to be written into."""
    key = ("measured", name, id(rows))
    known: tuple[IntArray, FloatArray] | None = obs.memo.get(key)
    if known is None:
        found = STATISTICS[name].compute(gathered(obs, rows))
        known = obs.memo[key] = (rows, found)
    return known[1]
