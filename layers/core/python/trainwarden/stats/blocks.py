"""The block kernel: sums of one cache-sized block, with an exact path where float32 fails.

Inside a block sums are BLAS dot products in the tensor's own precision; across blocks they are
float64. A block whose squares are not finite, or so small that they underflow, is done again in
float64, and what is not finite is counted and set aside.
"""

from __future__ import annotations

import threading
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np

from trainwarden.stats.dtypes import Array, Kind

BLOCK = 65_536
UPDATE_RTOL = 1e-5
# 65,536 squares below float32's smallest normal lose at most 8e-34; against 1e-26 that is nothing.
SQUARES_UNDERFLOW = {np.dtype(np.float32): 1e-26, np.dtype(np.float64): -1.0}
_WORD = 2**64
FAR_SQUARED = 16.0  # a mean beyond 4 standard deviations cancels digits of the variance
# OpenBLAS spreads a dot product of more than 10,000 elements over threads. Beside a training
# loop that uses every core, waiting for them costs up to 30 times the sum itself.
_DOT = 8_192

Bounds = tuple[float, float]


class Pad:
    """Scratch of one thread and one precision; blocks reuse it so that it stays in the cache."""

    def __init__(self, wide: np.dtype[Any]) -> None:
        self.ones = np.ones(BLOCK, wide)
        self.x, self.previous, self.a, self.b = (np.empty(BLOCK, wide) for _ in range(4))
        self.mask = np.empty(BLOCK, np.bool_)
        self.bits = np.dtype(f"u{wide.itemsize}")
        self.float = wide.type
        self.underflow = SQUARES_UNDERFLOW[wide]


class _Pads(threading.local):
    def __init__(self) -> None:
        self.single = Pad(np.dtype(np.float32))
        self.double = Pad(np.dtype(np.float64))


_PADS = _Pads()


def pad_for(wide: np.dtype[Any]) -> Pad:
    """Return this thread's scratch for float32 or float64."""
    return _PADS.single if wide.itemsize == 4 else _PADS.double  # noqa: PLR2004 - bytes of float32


def dot(a: Array, b: Array) -> float:
    """Return the dot product of two vectors on this thread alone, chunks added in float64."""
    size = a.size
    if size <= _DOT:
        return float(a.dot(b))
    whole = size - size % _DOT
    chunks = np.matmul(a[:whole].reshape(-1, 1, _DOT), b[:whole].reshape(-1, _DOT, 1))
    total = sum(chunks.ravel().tolist())
    return float(total + float(a[whole:].dot(b[whole:])) if whole < size else total)


class Sums:
    """What the blocks of one tensor add up to; names are those of ``stats.catalog``."""

    __slots__ = (
        *("n", "n_nan", "n_pinf", "n_ninf", "n_zero", "n_neg", "n_tiny", "n_sat_lo", "n_sat_hi"),
        *("low", "high", "absmin", "shift", "sum_d", "sum_d2", "sum_abs", "max_block"),
        *("u_n", "u_sum", "u_sum2", "u_maxabs", "u_excess", "u_w2", "fp_xor", "fp_sum"),
    )

    def __init__(self) -> None:
        self.n = self.n_nan = self.n_pinf = self.n_ninf = self.n_zero = self.n_neg = 0
        self.n_tiny = self.n_sat_lo = self.n_sat_hi = self.u_n = self.fp_xor = self.fp_sum = 0
        self.low = self.absmin = inf
        self.high = self.u_excess = -inf
        self.shift: float | None = None
        self.sum_d = self.sum_d2 = self.sum_abs = self.max_block = 0.0
        self.u_sum = self.u_sum2 = self.u_maxabs = self.u_w2 = 0.0


def add_fingerprint(sums: Sums, raw: Array, number: int) -> None:
    """Add the bytes of block ``number``; the last word is filled up with zeros."""
    if raw.nbytes % 8:
        whole = np.zeros(-(-raw.nbytes // 8) * 8, np.uint8)
        whole[: raw.nbytes] = raw.view(np.uint8)
        words = whole.view(np.uint64)
    else:
        words = raw.view(np.uint64)
    sums.fp_xor ^= int(np.bitwise_xor.reduce(words))
    sums.fp_sum = (sums.fp_sum + (2 * number + 1) * int(np.add.reduce(words))) % _WORD


def _squares_hold(square: float, c: Array, pad: Pad) -> bool:
    """Tell whether a block's sum of squares is as good as its precision allows."""
    return pad.underflow < square < inf or (square == 0.0 and not c.any())


def add_block(sums: Sums, c: Array, kind: Kind, bounds: Bounds | None) -> None:
    """Add a block ``c`` (<= BLOCK,) of float32 or float64."""
    sums.n += c.size
    pad, square = pad_for(c.dtype), dot(c, c)
    if _squares_hold(square, c, pad):
        _add_finite(sums, c, square, kind, bounds)
        return
    wide = c.astype(np.float64)
    square = dot(wide, wide)
    if not isfinite(square):
        wide = _set_aside(sums, wide, bounds)
        if wide.size == 0:
            return
        square = dot(wide, wide)
    _add_finite(sums, wide, square, kind, bounds)


def _set_aside(sums: Sums, wide: Array, bounds: Bounds | None) -> Array:
    """Count what is not finite and return the rest."""
    pinf = int(np.count_nonzero(wide == inf))
    ninf = int(np.count_nonzero(wide == -inf))
    sums.n_nan += int(np.count_nonzero(np.isnan(wide)))
    sums.n_pinf += pinf
    sums.n_ninf += ninf
    if bounds is not None:
        sums.n_sat_lo += ninf
        sums.n_sat_hi += pinf
    found: Array = wide[np.isfinite(wide)]
    return found


def _add_finite(sums: Sums, c: Array, square: float, kind: Kind, bounds: Bounds | None) -> None:
    pad, size = pad_for(c.dtype), c.size
    ones, scratch = pad.ones[:size], pad.a[:size]
    total = dot(c, ones)
    low, high = float(np.minimum.reduce(c)), float(np.maximum.reduce(c))
    if sums.shift is None:
        sums.shift = _shift(size, total, square, low, high, pad)
    if sums.shift:
        np.subtract(c, pad.float(sums.shift), out=scratch)
        sums.sum_d += dot(scratch, ones)
        sums.sum_d2 += dot(scratch, scratch)
    else:
        sums.sum_d += total
        sums.sum_d2 += square
    sums.low, sums.high = min(sums.low, low), max(sums.high, high)
    sums.max_block = max(sums.max_block, sqrt(square))
    if high < 0.0:
        sums.n_neg += size
    elif low < 0.0:
        sums.n_neg += int(np.count_nonzero(np.less(c, 0.0, out=pad.mask[:size])))
    if bounds is not None:
        if low <= bounds[0]:
            mask = np.less_equal(c, bounds[0], out=pad.mask[:size])
            sums.n_sat_lo += int(np.count_nonzero(mask))
        if high >= bounds[1]:
            mask = np.greater_equal(c, bounds[1], out=pad.mask[:size])
            sums.n_sat_hi += int(np.count_nonzero(mask))
    np.absolute(c, out=scratch)
    sums.sum_abs += dot(scratch, ones)
    _add_magnitudes(sums, scratch, pad, kind.tiny)


def _shift(size: int, total: float, square: float, low: float, high: float, pad: Pad) -> float:
    """Choose what moments are taken about: zero, unless the first block's mean is far from it."""
    if low == high:
        return low
    mean = total / size
    variance = max(square / size - mean * mean, 0.0)
    if isfinite(square) and mean * mean > FAR_SQUARED * variance:
        return float(pad.float(mean))
    return 0.0


def _add_magnitudes(sums: Sums, magnitudes: Array, pad: Pad, tiny: float) -> None:
    """Count zeros and subnormals of |x|, which is overwritten.

    The bits of non-negative floats order like integers: minus one, zero becomes the largest, so
    that one minimum finds the smallest non-zero. It is also four times as fast as comparing floats.
    """
    size, bits = magnitudes.size, magnitudes.view(pad.bits)
    nonzero = int(np.count_nonzero(bits))
    sums.n_zero += size - nonzero
    if nonzero == 0:
        return
    one = pad.bits.type(1)
    if nonzero == size:
        smallest = float(np.minimum.reduce(magnitudes))
    else:
        np.subtract(bits, one, out=bits)
        smallest = float((np.minimum.reduce(bits) + one).view(pad.float))
    sums.absmin = min(sums.absmin, smallest)
    if smallest < tiny:
        limit = pad.float(tiny).view(pad.bits) - one * (nonzero < size)
        sums.n_tiny += int(np.count_nonzero(np.less(bits, limit, out=pad.mask[:size])))


def add_update(sums: Sums, c: Array, previous: Array) -> None:
    """Add the change of a block since the previous saved step, where both are finite."""
    pad, size = pad_for(c.dtype), c.size
    d, scratch = pad.a[:size], pad.b[:size]
    np.subtract(c, previous, out=d)
    square, weight = dot(d, d), dot(previous, previous)
    if not (_squares_hold(square, d, pad) and _squares_hold(weight, previous, pad)):
        if c.dtype.itemsize == 4:  # noqa: PLR2004 - bytes of float32
            add_update(sums, c.astype(np.float64), previous.astype(np.float64))
            return
        both = np.isfinite(c) & np.isfinite(previous)
        if not both.all():
            if both.any():
                add_update(sums, c[both], previous[both])
            return
    sums.u_n += size
    sums.u_sum += dot(d, pad.ones[:size])
    sums.u_sum2 += square
    sums.u_w2 += weight
    np.absolute(d, out=d)
    sums.u_maxabs = max(sums.u_maxabs, float(np.maximum.reduce(d)))
    np.absolute(previous, out=scratch)
    np.multiply(scratch, pad.float(-UPDATE_RTOL), out=scratch)
    np.add(scratch, d, out=scratch)
    sums.u_excess = max(sums.u_excess, float(np.maximum.reduce(scratch)))
