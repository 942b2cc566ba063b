"""Many small tensors at once: packed one behind the other, each pass sums all of them.

A numpy call costs as much as a thousand elements, so biases and norms would cost what a weight
does. What needs care (subnormals, NaN, squares out of range) is left to the block kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from trainwarden.model import FloatArray
from trainwarden.stats.blocks import FAR_SQUARED, SQUARES_UNDERFLOW, UPDATE_RTOL
from trainwarden.stats.catalog import INDEX, WIDTH
from trainwarden.stats.dtypes import Array

SMALL = 4_096  # elements; beyond, the block kernel is as fast
_PACK = 8 * SMALL
_WORTH = 4  # fewer are done sooner one by one
_SINGLE = np.dtype(np.float32)
_ONE = np.uint32(1)
_NORMAL = float(np.finfo(np.float32).tiny)
_LOW = SQUARES_UNDERFLOW[_SINGLE]
_NONE = ("n_nan", "n_pinf", "n_ninf", "n_tiny", "flags")  # else the row does not hold
_FP = slice(INDEX["fp_xor"], INDEX["fp_sum"] + 1)


class Small(NamedTuple):
    """A tensor that may be packed: its row, its elements and its previous ones, flat."""

    row: int
    x: Array
    previous: Array | None


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.x, self.previous, self.a, self.b = (np.empty(_PACK, _SINGLE) for _ in range(4))
        self.mask = np.empty(_PACK, np.bool_)


_SCRATCH = _Scratch()


def is_small(x: Array, previous: Array | None) -> bool:
    """Tell whether a tensor may be packed: few float32, an even number, in C order.

    Even, so that each begins at a word of the fingerprint.
    """
    size = x.size
    return (
        size <= SMALL
        and size > 0
        and size % 2 == 0
        and x.dtype == _SINGLE
        and x.flags.c_contiguous
        and (previous is None or previous.flags.c_contiguous)
    )


def fill_small(tensors: Sequence[Small], out: FloatArray) -> list[int]:
    """Fill the rows of packed tensors; return the rows that need the block kernel after all."""
    left: list[int] = []
    for updated in (False, True):
        group = [small for small in tensors if (small.previous is not None) is updated]
        if len(group) < _WORTH:
            left += [small.row for small in group]
            continue
        begin = filled = 0
        for end, small in enumerate(group):
            if filled + small.x.size > _PACK:
                left += _fill(group[begin:end], out)
                begin, filled = end, 0
            filled += small.x.size
        left += _fill(group[begin:], out)
    return left


def _fill(group: Sequence[Small], out: FloatArray) -> list[int]:
    rows = np.array([small.row for small in group])
    sizes = np.array([small.x.size for small in group])
    starts = np.cumsum(sizes) - sizes
    x = np.concatenate([small.x for small in group], out=_SCRATCH.x[: int(sizes.sum())])
    found = np.full((len(group), WIDTH), np.nan)
    good = _moments(x, starts, sizes, found)
    before = [small.previous for small in group if small.previous is not None]
    if before:
        previous = np.concatenate(before, out=_SCRATCH.previous[: x.size])
        good &= _updates(x, previous, starts, sizes, found)
    words = x.view(np.uint64)
    prints = found[:, _FP].view(np.uint64)
    prints[:, 0] = np.bitwise_xor.reduceat(words, starts // 2)
    prints[:, 1] = np.add.reduceat(words, starts // 2)
    out[rows] = found
    left: list[int] = rows[~good].tolist()
    return left


def _adder(starts: Array) -> Callable[[Array], FloatArray]:
    def add(values: Array) -> FloatArray:
        return np.add.reduceat(values, starts).astype(np.float64)

    return add


def _moments(x: Array, starts: Array, sizes: Array, found: FloatArray) -> Array:
    """Fill the columns of one tensor each; tell which hold, (T,) bool."""
    add, scratch, mask = _adder(starts), _SCRATCH.a[: x.size], _SCRATCH.mask[: x.size]
    low, high = (f.reduceat(x, starts).astype(np.float64) for f in (np.minimum, np.maximum))
    total, square = add(x), add(np.multiply(x, x, out=scratch))
    np.absolute(x, out=scratch)
    values: dict[str, Array | int] = dict.fromkeys(_NONE, 0)
    values |= {"n": sizes, "min": low, "max": high, "sum_abs": add(scratch)}
    zeros, smallest = _zeros(scratch, starts, mask)
    empty = zeros == sizes
    values |= {"n_zero": zeros, "absmin_nz": np.where(empty, np.nan, smallest)}
    values["n_neg"] = np.add.reduceat(np.less(x, 0, out=mask), starts, dtype=np.int32)
    values["max_block_l2"] = np.sqrt(square)
    mean = total / sizes
    variance = np.maximum(square / sizes - mean * mean, 0.0)
    far = mean * mean > FAR_SQUARED * variance
    shift = np.where(low == high, low, np.where(far, mean.astype(np.float32), 0.0))
    values |= {"shift": shift, "sum_d": total, "sum_d2": square}
    moved = shift != 0.0
    if moved.any():
        d = np.subtract(x, np.repeat(shift.astype(np.float32), sizes), out=scratch)
        values["sum_d"] = np.where(moved, add(d), total)
        values["sum_d2"] = np.where(moved, add(np.multiply(d, d, out=d)), square)
    for name, value in values.items():
        found[:, INDEX[name]] = value
    good: Array = ((square > _LOW) & (square < np.inf) & (smallest >= _NORMAL)) | empty
    return good


def _zeros(magnitudes: Array, starts: Array, mask: Array) -> tuple[Array, FloatArray]:
    """Count zeros and find the smallest other number; ``magnitudes`` is overwritten."""
    smallest = np.minimum.reduceat(magnitudes, starts)
    if smallest.all():
        return np.zeros(len(starts), np.int64), smallest.astype(np.float64)
    zeros = np.add.reduceat(np.equal(magnitudes, 0, out=mask), starts, dtype=np.int64)
    # Minus one, the bits of zero become the largest: see the block kernel.
    bits = magnitudes.view(np.uint32)
    np.subtract(bits, _ONE, out=bits)
    smallest = (np.minimum.reduceat(bits, starts) + _ONE).view(_SINGLE)
    return zeros, smallest.astype(np.float64)


def _updates(x: Array, previous: Array, starts: Array, sizes: Array, found: FloatArray) -> Array:
    """Fill the columns of the change since the previous saved step; tell which hold, (T,) bool."""
    add, a, b = _adder(starts), _SCRATCH.a[: x.size], _SCRATCH.b[: x.size]
    d = np.subtract(x, previous, out=a)
    values: dict[str, Array] = {"u_n": sizes, "u_sum": add(d)}
    square = values["u_sum2"] = add(np.multiply(d, d, out=b))
    weight = values["u_w2"] = add(np.multiply(previous, previous, out=b))
    np.absolute(d, out=d)
    largest = values["u_maxabs"] = np.maximum.reduceat(d, starts).astype(np.float64)
    np.absolute(previous, out=b)
    heaviest = np.maximum.reduceat(b, starts)
    np.multiply(b, np.float32(-UPDATE_RTOL), out=b)
    values["u_excess"] = np.maximum.reduceat(np.add(b, d, out=b), starts).astype(np.float64)
    for name, value in values.items():
        found[:, INDEX[name]] = value
    holds = (square > _LOW) | (largest == 0)
    holds &= (weight > _LOW) | (heaviest == 0)
    good: Array = holds & (square < np.inf) & (weight < np.inf)
    return good
