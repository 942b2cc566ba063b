"""Rows of disjoint shards of one tensor become the row of the whole.

NaN means absent: a column that only one side knows keeps that side's value. Counts merge exactly;
moments by the pairwise formula, to rounding.
"""

from __future__ import annotations

import numpy as np

from trainwarden.model import FloatArray, IntArray
from trainwarden.stats.catalog import COLUMNS, INDEX, Merge


def _columns(merge: Merge) -> list[int]:
    return [i for i, spec in enumerate(COLUMNS) if spec.merge is merge]


_SUM, _MIN, _MAX = _columns(Merge.SUM), _columns(Merge.MIN), _columns(Merge.MAX)
_XOR, _OR = _columns(Merge.XOR), _columns(Merge.OR)
_FLAGS = INDEX["flags"]
_SHIFT, _D, _D2 = INDEX["shift"], INDEX["sum_d"], INDEX["sum_d2"]


def merge_rows(a: FloatArray, b: FloatArray) -> FloatArray:
    """Merge rows (..., 32) with rows (..., 32); a row that is NaN in ``n`` is absent.

    Fingerprints are combined by xor, so the order of shards does not matter, and a sharded
    tensor's fingerprint is its own: it tells change, not equality with the unsharded tensor.
    """
    a, b = np.broadcast_arrays(a, b)
    out = np.full(a.shape, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = a[..., _SUM], b[..., _SUM]
        both = ~np.isnan(left) & ~np.isnan(right)
        out[..., _SUM] = np.where(both, left + right, np.where(np.isnan(left), right, left))
        out[..., _MIN] = np.fmin(a[..., _MIN], b[..., _MIN])
        out[..., _MAX] = np.fmax(a[..., _MAX], b[..., _MAX])
        out[..., _OR] = _bits_or(a[..., _OR], b[..., _OR])
        _merge_moments(a, b, out)
    words = out.view(np.uint64)
    words[..., _XOR] = _words(a)[..., _XOR] ^ _words(b)[..., _XOR]
    # An absent row has no bits to combine: take the other's as they are.
    out[...] = np.where(np.isnan(a[..., :1]), b, np.where(np.isnan(b[..., :1]), a, out))
    return out


def add_flags(rows: FloatArray, flags: IntArray | int) -> None:
    """Set further bits in the flags of captured rows (R, 32); ``flags`` are (R,) or the same."""
    rows[:, _FLAGS] = rows[:, _FLAGS].astype(np.int64) | flags


def _words(rows: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return np.ascontiguousarray(rows, np.float64).view(np.uint64)


def _bits_or(a: FloatArray, b: FloatArray) -> FloatArray:
    left, right = (np.nan_to_num(side).astype(np.int64) for side in (a, b))
    return (left | right).astype(np.float64)


def _finite(rows: FloatArray) -> FloatArray:
    return rows[..., 0] - rows[..., 1] - rows[..., 2] - rows[..., 3]


def _merge_moments(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """Chan's formula; where both shifts agree, or one side is empty, plain addition is exact."""
    count_a, count_b = _finite(a), _finite(b)
    # Without a finite element there are no moments: any shift will do, so take the other's.
    shift_a = np.where(count_a > 0, a[..., _SHIFT], b[..., _SHIFT])
    shift_b = np.where(count_b > 0, b[..., _SHIFT], shift_a)
    total = np.maximum(count_a + count_b, 1.0)
    mean_a = a[..., _D] / np.maximum(count_a, 1.0)
    mean_b = b[..., _D] / np.maximum(count_b, 1.0)
    apart = (shift_b - shift_a) + (mean_b - mean_a)  # difference of the means, no large sums
    within = (a[..., _D2] - mean_a * a[..., _D]) + (b[..., _D2] - mean_b * b[..., _D])
    between = apart * apart * (count_a * count_b / total)
    mean = shift_a + mean_a + apart * (count_b / total)
    same = shift_a == shift_b
    added = a[..., _D] + b[..., _D]
    out[..., _SHIFT] = np.where(same, shift_a, mean)
    out[..., _D] = np.where(same, added, 0.0)
    out[..., _D2] = np.where(same, a[..., _D2] + b[..., _D2], within + between)
