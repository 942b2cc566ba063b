"""Reductions of a tensor, from its values or from its row of statistics.

Both give what numpy gives for the whole tensor, NaN and infinities included, and the norms are
those of the flattened tensor. ``std`` and ``variance`` divide by n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from trainwarden.model import FloatArray
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS
from trainwarden.trial.source import Array, Unknown

REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
FROM_ROW = tuple(name for name in REDUCTIONS if name != "prod")
_OTHER_NAMES = {"l1_norm": "l1", "l2_norm": "l2", "var": "variance"}
_OF_ARRAY: Mapping[str, Callable[[Array], float]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda x: float(np.linalg.norm(x.reshape(-1), 1)),
    "l2": lambda x: float(np.linalg.norm(x.reshape(-1), 2)),
}


def canonical(name: str) -> str:
    """Return a reduction's name in short: ``l2_norm`` is ``l2``.

    Raises:
        Unknown: nobody computes it.
    """
    found = _OTHER_NAMES.get(name, name)
    if found not in REDUCTIONS:
        raise Unknown(f"{name!r} is none of {', '.join(REDUCTIONS)}")
    return found


def of_array(x: Array, name: str, *, absolute: bool) -> float:
    """Reduce values.

    Raises:
        Unknown: no such reduction, no numbers, no elements.
    """
    name = canonical(name)
    if x.dtype.kind not in "biufc" or not x.size:
        raise Unknown(f"{'text' if x.size else 'an empty tensor'} has no {name}")
    if x.dtype.kind == "b":
        x = x.astype(np.int64)
    with np.errstate(all="ignore"):
        found = _OF_ARRAY[name](np.absolute(x) if absolute else x)
    return float(np.real(found))


def of_row(row: FloatArray, name: str, *, absolute: bool) -> float:
    """Reduce a row of statistics, (32,) float64.

    Raises:
        Unknown: no such reduction, no elements, or one that statistics do not carry.
    """
    name = canonical(name)
    if name not in FROM_ROW:
        raise Unknown(f"statistics carry {', '.join(FROM_ROW)}, no {name}")
    if not row[0] > 0:
        raise Unknown("an empty tensor has no reductions")
    nonfinite = _nonfinite(row, name, absolute=absolute)
    return _finite(row, name, absolute=absolute) if nonfinite is None else nonfinite


def _nonfinite(row: FloatArray, name: str, *, absolute: bool) -> float | None:
    """Return what NaN and infinities make of it; None if they change nothing."""
    nan, high, low = (float(row[INDEX[c]]) for c in ("n_nan", "n_pinf", "n_ninf"))
    if absolute or name in ("l1", "l2"):
        high, low = high + low, 0.0
    if nan:
        return math.nan
    if not high and not low:
        return None
    if name in ("min", "max"):
        there, other = (low, high) if name == "min" else (high, low)
        if there:
            return -math.inf if name == "min" else math.inf
        everything = other >= row[0]
        return (math.inf if name == "min" else -math.inf) if everything else None
    if name in ("std", "variance") or (high and low):
        return math.nan
    return math.inf if high else -math.inf


def _finite(row: FloatArray, name: str, *, absolute: bool) -> float:
    if name == "l1":
        return float(row[INDEX["sum_abs"]])
    if not absolute or name == "l2":
        return _statistic(row, name)
    if name == "min":
        return 0.0 if row[INDEX["n_zero"]] > 0 else float(row[INDEX["absmin_nz"]])
    if name in ("max", "mean"):
        return _statistic(row, f"abs_{name}")
    if name == "sum":
        return float(row[INDEX["sum_abs"]])
    mean, rms = _statistic(row, "abs_mean"), _statistic(row, "rms")
    variance = max(0.0, rms * rms - mean * mean)
    return variance if name == "variance" else math.sqrt(variance)


def _statistic(row: FloatArray, name: str) -> float:
    return float(STATISTICS[name].compute(row[np.newaxis])[0])
