"""A row of statistics from the reductions that were saved in place of a tensor's values."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwarden.model import FloatArray
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.reductions import EMPTY_ROW

_NAN = math.nan


def row_of_reductions(saved: Mapping[str, float], shape: tuple[int, ...] | None) -> FloatArray:
    """Return the columns that reductions tell, (32,) float64; the others are NaN.

    Without the shape the tensor counts as one element, so that sums are means. ``std`` and
    ``variance`` are torch's, which divide by n - 1. NaN and infinities count as one element each.
    """
    row = EMPTY_ROW.copy()
    size = float(math.prod(shape)) if shape is not None else 1.0
    if not saved or not size:
        return row
    given = {name: saved.get(name, _NAN) for name in (*_NAMES, *(f"abs_{n}" for n in _NAMES))}
    mean = _either(given["mean"], given["sum"] / size)
    abs_mean = _either(
        given["abs_mean"], given["l1"] / size, given["abs_l1"] / size, given["abs_sum"] / size
    )
    numbers = {
        "n": size,
        **_nonfinite(saved),
        "min": given["min"],
        "max": given["max"],
        "shift": mean,
        "sum_d": 0.0,
        "sum_d2": _deviations(given, mean, size),
        "sum_abs": abs_mean * size,
        "max_block_l2": _either(given["l2"], given["abs_l2"]),
        "flags": 0.0,
        "fp_xor": 0.0,
        "fp_sum": 0.0,
    }
    if given["abs_max"] == 0 or given["max"] == given["min"] == 0:
        numbers["n_zero"] = size
    elif given["abs_min"] > 0 or given["min"] > 0 or given["max"] < 0:
        numbers["n_zero"] = 0.0
    for name, value in numbers.items():
        row[INDEX[name]] = value if not math.isinf(value) else _NAN
    return row


_NAMES = ("min", "max", "mean", "std", "variance", "sum", "l1", "l2")


def _nonfinite(saved: Mapping[str, float]) -> dict[str, float]:
    """Count what the reductions show; std and variance are NaN for a single element anyway."""
    shown = {n: v for n, v in saved.items() if not n.endswith(("std", "variance", "prod"))}
    return {
        "n_nan": float(any(math.isnan(value) for value in shown.values())),
        "n_pinf": float(shown.get("max") == math.inf),
        "n_ninf": float(shown.get("min") == -math.inf),
    }


def _deviations(given: Mapping[str, float], mean: float, size: float) -> float:
    """Return the sum of squared deviations from the mean."""
    variance = _either(given["variance"], given["std"] ** 2)
    if not math.isnan(variance):
        return variance * (size - 1 if size > 1 else 1.0)
    square = _either(given["l2"], given["abs_l2"]) ** 2
    return max(0.0, square - mean * mean * size) if not math.isnan(square + mean) else _NAN


def _either(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), _NAN)
