"""Norms and duplicates of a weight's output units, for the first saved step."""

from __future__ import annotations

from math import nan

import numpy as np

from trainwarden.stats.blocks import BLOCK
from trainwarden.stats.dtypes import Array, Kind


def unit_columns(x: Array, kind: Kind) -> tuple[float, float, float]:
    """Return (smallest norm, largest norm, duplicates) of the units along the first axis.

    A unit with a NaN has no norm; all are NaN if ``x`` has fewer than two axes or no elements.
    Duplicates are the units whose bytes equal another's.
    """
    if x.ndim < 2 or x.size == 0:  # noqa: PLR2004 - unit, weight
        return nan, nan, nan
    units = np.ascontiguousarray(x).reshape(x.shape[0], -1)
    norms = np.sqrt(_squares(units, kind))
    low, high = float(np.fmin.reduce(norms)), float(np.fmax.reduce(norms))
    return low, high, float(_duplicates(units))


def _squares(units: Array, kind: Kind) -> Array:
    """Sum of squares of each unit, (units,) float64, a few units at a time."""
    count, width = units.shape
    squares = np.zeros(count)
    step = max(1, BLOCK // width)
    for begin in range(0, count, step):
        for left in range(0, width, BLOCK):
            raw = units[begin : begin + step, left : left + BLOCK]
            wide = np.empty(raw.shape, kind.wide)
            if kind.widen is None:
                np.copyto(wide, raw)
            else:
                kind.widen(raw, wide)
            double = wide.astype(np.float64, copy=False)
            squares[begin : begin + step] += np.einsum("ij,ij->i", double, double)
    return squares


def _duplicates(units: Array) -> int:
    records = units.view(np.dtype((np.void, units.shape[1] * units.dtype.itemsize))).reshape(-1)
    _, counts = np.unique(records, return_counts=True)
    return int(counts[counts > 1].sum())
