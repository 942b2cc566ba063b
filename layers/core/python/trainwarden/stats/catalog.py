"""The one place that names a statistics column, its unit, how it merges and what NaN means.

A row is 32 float64 values for one tensor at one step. Counters are exact to 2**53. Moments are
kept about a stored ``shift`` so that a large mean does not cancel the variance. A row that was
not captured is NaN throughout; a captured row never has NaN in ``n``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Merge(Enum):
    """How two rows of disjoint shards of one tensor combine in a column."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    XOR = "xor"
    MOMENT = "moment"  # shift, sum_d, sum_d2 together, by Chan's pairwise formula
    OR = "or"


class ColumnSpec(NamedTuple):
    """One column: ``unit`` ``x`` is the tensor's own unit; ``nan`` says what NaN means there."""

    name: str
    unit: str
    merge: Merge
    meaning: str
    nan: str = "never"


_UPDATE = "no previous value: first saved step, or updates not captured"
_CHANNEL = "not a ReLU-like activation"
_BOUNDS = "no bounds declared for the tensor"
_ROWS = "not a weight matrix, or not the first saved step"

COLUMNS: tuple[ColumnSpec, ...] = (
    ColumnSpec("n", "elements", Merge.SUM, "elements of the tensor", "row not captured"),
    ColumnSpec("n_nan", "elements", Merge.SUM, "NaN elements"),
    ColumnSpec("n_pinf", "elements", Merge.SUM, "+inf elements"),
    ColumnSpec("n_ninf", "elements", Merge.SUM, "-inf elements"),
    ColumnSpec("n_zero", "elements", Merge.SUM, "elements equal to zero"),
    ColumnSpec("n_neg", "elements", Merge.SUM, "finite elements below zero"),
    ColumnSpec("n_tiny", "elements", Merge.SUM, "non-zero subnormals of the tensor's own dtype"),
    ColumnSpec("n_sat_lo", "elements", Merge.SUM, "elements at or below the lower bound", _BOUNDS),
    ColumnSpec("n_sat_hi", "elements", Merge.SUM, "elements at or above the upper bound", _BOUNDS),
    ColumnSpec("min", "x", Merge.MIN, "smallest finite element", "no finite element"),
    ColumnSpec("max", "x", Merge.MAX, "largest finite element", "no finite element"),
    ColumnSpec("absmin_nz", "x", Merge.MIN, "smallest |x| > 0", "no finite non-zero element"),
    ColumnSpec("shift", "x", Merge.MOMENT, "what moments are taken about"),
    ColumnSpec("sum_d", "x", Merge.MOMENT, "sum of (x - shift) over finite elements"),
    ColumnSpec("sum_d2", "x²", Merge.MOMENT, "sum of (x - shift)² over finite elements"),
    ColumnSpec("sum_abs", "x", Merge.SUM, "sum of |x| over finite elements"),
    ColumnSpec("max_block_l2", "x", Merge.MAX, "largest L2 norm of a 65,536-element block"),
    ColumnSpec(
        "u_n", "elements", Merge.SUM, "elements compared with the previous saved step", _UPDATE
    ),
    ColumnSpec("u_sum", "x", Merge.SUM, "sum of (x - previous)", _UPDATE),
    ColumnSpec("u_sum2", "x²", Merge.SUM, "sum of (x - previous)²", _UPDATE),
    ColumnSpec("u_maxabs", "x", Merge.MAX, "largest |x - previous|", _UPDATE),
    ColumnSpec("u_excess", "x", Merge.MAX, "max(|x - previous| - 1e-5 |previous|)", _UPDATE),
    ColumnSpec("u_w2", "x²", Merge.SUM, "sum of previous² over the compared elements", _UPDATE),
    ColumnSpec("fp_xor", "bits", Merge.XOR, "xor of the raw bytes as uint64 words (bit pattern)"),
    ColumnSpec("fp_sum", "bits", Merge.XOR, "weighted sum of the same words (bit pattern)"),
    ColumnSpec("ch_n", "channels", Merge.MAX, "channels", _CHANNEL),
    ColumnSpec("ch_dead", "channels", Merge.MAX, "channels with no active element", _CHANNEL),
    ColumnSpec(
        "ch_low", "channels", Merge.MAX, "channels active in under 1 % of elements", _CHANNEL
    ),
    ColumnSpec(
        "row_norm_min", "x", Merge.MIN, "smallest L2 norm of an output unit's weights", _ROWS
    ),
    ColumnSpec(
        "row_norm_max", "x", Merge.MAX, "largest L2 norm of an output unit's weights", _ROWS
    ),
    ColumnSpec("row_dup", "rows", Merge.SUM, "output units whose weights equal another's", _ROWS),
    ColumnSpec("flags", "bits", Merge.OR, "Flag bits"),
)
WIDTH = 32
INDEX: dict[str, int] = {spec.name: i for i, spec in enumerate(COLUMNS)}


class Flag:
    """Bits of the ``flags`` column."""

    SAMPLED = 1  # moments, extremes and fingerprint come from a sample
    UPDATE_SAMPLED = 2  # u_* columns come from a fixed sample of elements
    SCALED = 4  # gradient of a GradScaler-scaled loss, already divided by the scale
    SKIPPED = 8  # GradScaler skipped this optimizer step: non-finite gradients are normal
    PART = 16  # of one process's part of the tensor, to be merged with those of the others
