"""Tensors to rows of statistics: 32 float64 values each, exact, numpy only.

One pass over cache-sized blocks, scratch reused per thread. Complex tensors count their real and
imaginary parts as elements. Columns that do not apply are NaN, see ``stats.catalog``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple

import numpy as np

from trainwarden.errors import BadInputError
from trainwarden.model import Channels, FloatArray, IntArray
from trainwarden.stats.blocks import (
    BLOCK,
    Bounds,
    Sums,
    add_block,
    add_fingerprint,
    add_update,
    dot,
    pad_for,
)
from trainwarden.stats.catalog import INDEX, WIDTH
from trainwarden.stats.dtypes import Array, Kind, kind_of, parts
from trainwarden.stats.packing import Small, fill_small, is_small
from trainwarden.stats.units import unit_columns

LOW_ACTIVITY = 0.01  # a channel active in a smaller share of elements counts in ch_low
_FP = slice(INDEX["fp_xor"], INDEX["fp_sum"] + 1)
_UNITS = slice(INDEX["row_norm_min"], INDEX["row_dup"] + 1)
_SINGLE = np.dtype(np.float32)
_SUMS = [INDEX[name] for name in ("sum_d", "sum_d2", "sum_abs", "max_block_l2")]
_SUMS += [INDEX[name] for name in ("u_sum", "u_sum2", "u_w2")]
_SINGLE_ROUNDING = 1e-7  # above float32's 6e-8; what moves further was subnormal
_EXACT_IN_SINGLE = 2**24  # whole numbers up to here are float32's
_CHANNELS = slice(INDEX["ch_n"], INDEX["ch_low"] + 1)

EMPTY_ROW: FloatArray = np.full(WIDTH, np.nan)
EMPTY_ROW.flags.writeable = False


class Tensor(NamedTuple):
    """One tensor to reduce.

    Attributes:
        x: Any shape; bfloat16 as uint16, float8 as uint8. Dense memory is read without a copy.
        dtype: As in ``TensorInfo.dtype``.
        previous: The same tensor at the previous saved step; None leaves ``u_*`` NaN.
        bounds: (lower, upper) saturation values; None leaves ``n_sat_*`` NaN.
        per_unit: Fill ``row_*``; the first axis counts output units.
    """

    x: Array
    dtype: str
    previous: Array | None = None
    bounds: tuple[float, float] | None = None
    per_unit: bool = False


def row(
    x: Array,
    *,
    dtype: str,
    previous: Array | None = None,
    bounds: tuple[float, float] | None = None,
    per_unit: bool = False,
) -> FloatArray:
    """Return one tensor's statistics, (32,) float64; see ``Tensor`` for the arguments.

    Raises:
        BadInputError: a dtype nobody knows, an array that does not store it, or a ``previous`` of
            another shape or type.
    """
    out = np.empty((1, WIDTH))
    table([Tensor(x, dtype, previous, bounds, per_unit)], out)
    found: FloatArray = out[0]
    return found


def table(tensors: Sequence[Tensor], out: FloatArray) -> None:
    """Fill ``out`` (len(tensors), 32) float64, a row for each tensor.

    Raises:
        BadInputError: as ``row``.
    """
    prepared = [_prepare(tensor) for tensor in tensors]
    with np.errstate(all="ignore"):  # over- and underflow are looked for, not warned about
        small = [
            Small(i, part.x, part.previous)
            for i, part in enumerate(prepared)
            if tensors[i].bounds is None and is_small(part.x, part.previous)
        ]
        rest = set(range(len(tensors))).difference(item.row for item in small)
        for i in rest.union(fill_small(small, out)):
            _fill(out[i], prepared[i], tensors[i].bounds)
        for i, tensor in enumerate(tensors):
            if tensor.per_unit:
                out[i, _UNITS] = unit_columns(parts(tensor.x, prepared[i].kind), prepared[i].kind)
        _round(out, np.array([part.kind.wide == _SINGLE for part in prepared], dtype=np.bool_))


class _Prepared(NamedTuple):
    kind: Kind
    x: Array  # flat
    previous: Array | None  # flat, in the same order


def _prepare(tensor: Tensor) -> _Prepared:
    """Check a tensor and flatten it: in memory order if that costs no copy, else in C order."""
    kind = kind_of(tensor.dtype)
    x = parts(tensor.x, kind)
    if tensor.previous is None:
        return _Prepared(kind, x.ravel("K"), None)
    previous = parts(tensor.previous, kind)
    if previous.shape != x.shape or previous.dtype != x.dtype:
        raise BadInputError(
            f"a previous value of {x.dtype} {x.shape}", f"{previous.dtype} {previous.shape}"
        )
    if x.strides == previous.strides:
        return _Prepared(kind, x.ravel("K"), previous.ravel("K"))
    return _Prepared(kind, x.ravel(), previous.ravel())


def _round(out: FloatArray, single: Array) -> None:
    """Round sums of float32 blocks to float32: the other digits are noise that does not compress.

    What float32 cannot hold stays as it is: squares of 1e25 or 1e-30 leave its range.
    """
    sums = out[:, _SUMS]
    rounded = sums.astype(np.float32).astype(np.float64)
    keep = np.abs(rounded - sums) > _SINGLE_ROUNDING * np.abs(sums)
    keep |= ~np.isfinite(rounded) | ~single[:, np.newaxis]
    out[:, _SUMS] = np.where(keep, sums, rounded)


def _fill(out: FloatArray, part: _Prepared, bounds: Bounds | None) -> None:
    """Fill one row block by block."""
    kind, x, previous = part
    sums, pad = Sums(), pad_for(kind.wide)
    if bounds is not None:
        bounds = (float(pad.float(bounds[0])), float(pad.float(bounds[1])))
    for begin in range(0, x.size, BLOCK):
        raw = x[begin : begin + BLOCK]
        add_fingerprint(sums, raw, begin // BLOCK)
        c = _widened(raw, kind, pad.x)
        add_block(sums, c, kind, bounds)
        if previous is not None:
            before = _widened(previous[begin : begin + BLOCK], kind, pad.previous)
            add_update(sums, c, before)
    out[:] = _columns(sums, updated=previous is not None, bounded=bounds is not None)
    out[_FP].view(np.uint64)[:] = (sums.fp_xor, sums.fp_sum)


def square_sum(x: Array, kind: Kind) -> float | None:
    """Return the sum of squares of ``x`` (N,), exact to its precision; None if that fails.

    It does where an element is NaN or infinite, or squares leave the range of the precision.
    """
    total, pad = 0.0, pad_for(kind.wide)
    with np.errstate(all="ignore"):
        for begin in range(0, x.size, BLOCK):
            c = _widened(x[begin : begin + BLOCK], kind, pad.x)
            total += dot(c, c)
    return total if pad.underflow < total < inf else None


def _widened(raw: Array, kind: Kind, scratch: Array) -> Array:
    if kind.widen is None:
        return raw
    wide = scratch[: raw.size]
    kind.widen(raw, wide)
    return wide


def _columns(s: Sums, *, updated: bool, bounded: bool) -> list[float]:
    """Columns in the catalogue's order; fingerprint, channels and units are filled in later."""
    update: list[float] = [nan] * 6
    if updated:
        excess = s.u_excess if s.u_n else nan
        update = [s.u_n, s.u_sum, s.u_sum2, s.u_maxabs if s.u_n else nan, excess, s.u_w2]
    saturated = [s.n_sat_lo, s.n_sat_hi] if bounded else [nan, nan]
    extremes = [s.low, s.high] if s.high > -inf else [nan, nan]
    absmin = s.absmin if s.absmin < inf else nan
    return [
        *(s.n, s.n_nan, s.n_pinf, s.n_ninf, s.n_zero, s.n_neg, s.n_tiny),
        *saturated,
        *extremes,
        *(absmin, s.shift or 0.0, s.sum_d, s.sum_d2, s.sum_abs, s.max_block),
        *update,
        *(0.0, 0.0),
        *(nan, nan, nan),
        *(nan, nan, nan),
        0.0,
    ]


def channels(x: Array, axis: int = 1, *, dtype: str = "") -> Channels:
    """Count strictly positive elements of each channel.

    Args:
        x: Activation of any shape with at least one axis; bfloat16 as uint16, float8 as uint8.
        axis: Where the channels lie; negative counts from the end.
        dtype: As in ``TensorInfo.dtype``; empty means numpy's own.

    Raises:
        BadInputError: no such axis, or as ``row``.
    """
    if not -x.ndim <= axis < x.ndim:
        raise BadInputError(f"an axis of {x.ndim} dimensions", str(axis))
    positive = _positive(x, dtype or str(x.dtype))
    count = x.shape[axis]
    inner = int(np.prod(x.shape[axis % x.ndim + 1 :], dtype=np.int64))
    return Channels(_counted(positive, count, inner), x.size // count if count else 0)


def _counted(positive: Array, count: int, inner: int) -> IntArray:
    """Count by channel; ``inner`` elements of a channel lie side by side."""
    if positive.size == 0:
        return np.zeros(count, dtype=np.int64)
    parts = positive.reshape(-1, count, inner)
    if positive.size < _EXACT_IN_SINGLE:  # sums of floats are twice as fast as of bools
        counts: FloatArray = np.einsum("ncx->c", parts.astype(np.float32))
    else:
        counts = np.sum(parts, axis=(0, 2), dtype=np.int64)
    return counts.astype(np.int64)


def _positive(x: Array, dtype: str) -> Array:
    kind = kind_of(dtype)
    if dtype == "bool":
        return x
    if dtype.startswith(("bfloat16", "float8")):
        # As integers, positive numbers lie between zero and the code of the first NaN.
        signed = x.view(np.dtype(f"i{x.dtype.itemsize}"))
        top = {"bfloat16": 0x7F80, "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7C}[dtype]
        found: Array = (signed > 0) & (signed <= top)
        return found
    if kind.storage.kind == "c":
        raise BadInputError("a real activation", dtype)
    positive: Array = x > 0
    return positive


def channel_columns(row: FloatArray, activity: Channels) -> None:
    """Fill ``ch_n``, ``ch_dead`` and ``ch_low`` of a row (32,) in place."""
    active, seen = activity
    dead = int(np.count_nonzero(active == 0)) if seen else 0
    low = int(np.count_nonzero(active < LOW_ACTIVITY * seen)) if seen else 0
    row[_CHANNELS] = (len(active), dead, low)
