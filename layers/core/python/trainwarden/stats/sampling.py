"""Large tensors measured from a sample: the cheap tier of a saved step.

The sum of squares, and with it that nothing is NaN or infinite, is exact: one dot product over all
elements, a tenth of what all columns cost. The rest comes from 64 runs of 64 elements, spread over
the tensor, and is scaled to all of it. What a sample cannot tell is measured exactly after all:
tensors with more than a few zeros (a sparse gradient) or subnormals, with what is not finite, or of
whose sampled elements none changed.

Relative errors on weights and dense gradients in training: RMS and mean magnitude 0.4 % in the
median, 3.6 % at most; the largest element is found within a factor of 0.6 (``benchmarks``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainwarden.model import FloatArray, IntArray
from trainwarden.stats.blocks import BLOCK
from trainwarden.stats.catalog import COLUMNS, INDEX, WIDTH, Flag, Merge
from trainwarden.stats.dtypes import kind_of, parts
from trainwarden.stats.merging import add_flags
from trainwarden.stats.reductions import Tensor, square_sum, table

RUNS, RUN = 64, 64
ELEMENTS = RUNS * RUN
WORTH = 4 * ELEMENTS  # elements from which a sample is cheaper
_GOLDEN = 0.6180339887498949  # spreads the runs' offsets, so that they do not fall on one column
_SCALED = [
    *(INDEX[spec.name] for spec in COLUMNS if spec.merge is Merge.SUM and spec.name != "n"),
    *(INDEX["sum_d"], INDEX["sum_d2"]),
]
_COUNTS = [INDEX[name] for name in ("n_zero", "n_neg", "n_tiny", "u_n")]
_N, _SHIFT, _SQUARES = INDEX["n"], INDEX["shift"], INDEX["sum_d2"]
_UPDATED, _LARGEST = INDEX["u_n"], INDEX["u_maxabs"]
_DOUBTS = [INDEX["n_zero"], INDEX["n_tiny"]]
_FEW = ELEMENTS // 64  # zeros or subnormals that are no sign of a sparse or an underflowing tensor


class _Sampled(NamedTuple):
    """A tensor of which a sample is measured."""

    row: int
    elements: int
    square: float
    sample: Tensor


def sampled_table(tensors: Sequence[Tensor], out: FloatArray) -> None:
    """Fill ``out`` (len(tensors), 32) like ``reductions.table``, large tensors from a sample.

    Rows from a sample have ``Flag.SAMPLED``, and the fingerprint, ``min``, ``max``, ``absmin_nz``,
    ``u_maxabs`` and ``u_excess`` of the sample, which is the same at each step.

    Raises:
        BadInputError: as ``table``.
    """
    found = [one for i, tensor in enumerate(tensors) if (one := _sampled(i, tensor)) is not None]
    measured = list(tensors)
    for one in found:
        measured[one.row] = one.sample
    table(measured, out)
    again = _scale(found, out)
    if again:
        exact = np.empty((len(again), WIDTH))
        table([tensors[row] for row in again], exact)
        out[again] = exact


def _sampled(row: int, tensor: Tensor) -> _Sampled | None:
    """Return a tensor's sample; None if all of it is to be measured."""
    x, previous = tensor.x, tensor.previous
    if x.size < WORTH or tensor.bounds is not None or tensor.per_unit or not x.flags.forc:
        return None
    kind = kind_of(tensor.dtype)
    if kind.tiny == 0.0 or x.dtype.kind == "c":  # integers; two parts
        return None
    if previous is not None and (previous.strides, previous.dtype) != (x.strides, x.dtype):
        return None
    flat = parts(x, kind).ravel("K")
    square = square_sum(flat, kind)
    if square is None:
        return None
    chosen = _positions(x.size)
    before = None if previous is None else parts(previous, kind).ravel("K").take(chosen)
    return _Sampled(row, x.size, square, Tensor(flat.take(chosen), tensor.dtype, before))


@lru_cache(maxsize=256)
def _positions(size: int) -> IntArray:
    """Return which of ``size`` elements are looked at, (4096,): the same at each step."""
    stride = size // RUNS
    begins = np.arange(RUNS) * stride
    shifts = (np.arange(RUNS) * _GOLDEN % 1.0 * (stride - RUN)).astype(np.int64)
    chosen: IntArray = ((begins + shifts)[:, np.newaxis] + np.arange(RUN)).reshape(-1)
    return chosen


def _scale(found: Sequence[_Sampled], out: FloatArray) -> list[int]:
    """Make rows of samples those of their tensors; return those that a sample cannot tell."""
    if not found:
        return []
    rows = np.array([one.row for one in found])
    part = out[rows]
    doubtful = (part[:, _DOUBTS] > _FEW).any(axis=1) | (part[:, _LARGEST] == 0)
    elements = np.array([float(one.elements) for one in found])
    part[:, _SCALED] *= (elements / part[:, _N])[:, np.newaxis]
    part[:, _COUNTS] = np.round(part[:, _COUNTS])
    part[:, _N] = elements
    square = np.array([one.square for one in found])
    part[:, _SQUARES] = np.where(part[:, _SHIFT] == 0, square, part[:, _SQUARES])
    part[:, INDEX["max_block_l2"]] = np.sqrt(square * np.minimum(1.0, BLOCK / elements))
    compared = ~np.isnan(part[:, _UPDATED])
    add_flags(part, np.where(compared, Flag.SAMPLED | Flag.UPDATE_SAMPLED, Flag.SAMPLED))
    out[rows] = part
    again: list[int] = rows[doubtful].tolist()
    return again
