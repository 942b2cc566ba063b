"""Every statistic a rule, a plot or a page may name, computed from the 32 columns.

A statistic that cannot be known is NaN: no finite element, no previous value, no bounds declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import NamedTuple

import numpy as np

from trainwarden.errors import ConfigError
from trainwarden.model import Column, FloatArray, IntArray, Need, Observation
from trainwarden.stats.catalog import COLUMNS, INDEX

VALUE = "value"  # the statistic of a collection of scalars

Compute = Callable[[FloatArray], FloatArray]


class Statistic(NamedTuple):
    """One statistic: ``compute`` maps rows (T, 32) to values (T,), both float64.

    ``unit`` ``x`` is the tensor's own unit.
    """

    name: str
    unit: str
    meaning: str
    compute: Compute


def _raw(index: int, rows: FloatArray) -> FloatArray:
    return rows[:, index]


def _get(rows: FloatArray, name: str) -> FloatArray:
    return rows[:, INDEX[name]]


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return top / bottom


def finite(rows: FloatArray) -> FloatArray:
    """Finite elements of each row, (T,) float64."""
    return rows[:, 0] - rows[:, 1] - rows[:, 2] - rows[:, 3]


def _mean(rows: FloatArray) -> FloatArray:
    return _get(rows, "shift") + _ratio(_get(rows, "sum_d"), finite(rows))


def _variance(rows: FloatArray) -> FloatArray:
    count = finite(rows)
    offset = _ratio(_get(rows, "sum_d"), count)
    square = _ratio(_get(rows, "sum_d2"), count)
    with np.errstate(invalid="ignore", over="ignore"):
        # Rounding may leave a constant tensor a hair below zero. inf - inf is an overflow: inf.
        found = np.maximum(square - offset * offset, 0.0)
    return np.where(np.isinf(square), np.inf, found)


def _std(rows: FloatArray) -> FloatArray:
    return np.sqrt(_variance(rows))


def _sum2(rows: FloatArray) -> FloatArray:
    """Sum of x² over finite elements: the stored moments moved from ``shift`` to zero."""
    shift, square = _get(rows, "shift"), _get(rows, "sum_d2")
    with np.errstate(invalid="ignore", over="ignore"):
        cross = shift * (2.0 * _get(rows, "sum_d") + shift * finite(rows))
    return np.where(shift == 0, square, np.maximum(square + cross, 0.0))


def _l2(rows: FloatArray) -> FloatArray:
    return np.sqrt(_sum2(rows))


def _rms(rows: FloatArray) -> FloatArray:
    return np.sqrt(_ratio(_sum2(rows), finite(rows)))


def _abs_mean(rows: FloatArray) -> FloatArray:
    return _ratio(_get(rows, "sum_abs"), finite(rows))


def _abs_max(rows: FloatArray) -> FloatArray:
    return np.maximum(_get(rows, "max"), -_get(rows, "min"))


def _range(rows: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return _get(rows, "max") - _get(rows, "min")


def _sum(rows: FloatArray) -> FloatArray:
    return _get(rows, "shift") * finite(rows) + _get(rows, "sum_d")


def _nonfinite(rows: FloatArray) -> FloatArray:
    return rows[:, 1] + rows[:, 2] + rows[:, 3]


def _saturated(rows: FloatArray) -> FloatArray:
    return _ratio(_get(rows, "n_sat_lo") + _get(rows, "n_sat_hi"), rows[:, 0])


def _quotient(top: str, bottom: str, rows: FloatArray) -> FloatArray:
    return _ratio(_get(rows, top), _get(rows, bottom))


def _update_l2(rows: FloatArray) -> FloatArray:
    return np.sqrt(_get(rows, "u_sum2"))


def _update_rms(rows: FloatArray) -> FloatArray:
    return np.sqrt(_quotient("u_sum2", "u_n", rows))


def _update_ratio(rows: FloatArray) -> FloatArray:
    return np.sqrt(_quotient("u_sum2", "u_w2", rows))


def _update_std(rows: FloatArray) -> FloatArray:
    mean = _quotient("u_sum", "u_n", rows)
    return np.sqrt(np.maximum(_quotient("u_sum2", "u_n", rows) - mean * mean, 0.0))


def _nonfinite_fraction(rows: FloatArray) -> FloatArray:
    return _ratio(_nonfinite(rows), rows[:, 0])


def _share(name: str, meaning: str, top: str, bottom: str = "n") -> Statistic:
    return Statistic(name, "1", meaning, partial(_quotient, top, bottom))


_DERIVED: tuple[Statistic, ...] = (
    Statistic("finite", "elements", "finite elements", finite),
    Statistic("nonfinite", "elements", "NaN, +inf and -inf elements", _nonfinite),
    Statistic("nonfinite_fraction", "1", "share of NaN and ±inf elements", _nonfinite_fraction),
    Statistic("mean", "x", "mean of the finite elements", _mean),
    Statistic("variance", "x²", "population variance of the finite elements", _variance),
    Statistic("std", "x", "population standard deviation of the finite elements", _std),
    Statistic("sum", "x", "sum of the finite elements", _sum),
    Statistic("abs_mean", "x", "mean |x| of the finite elements", _abs_mean),
    Statistic("abs_max", "x", "largest |x| of the finite elements", _abs_max),
    Statistic("range", "x", "max - min of the finite elements", _range),
    Statistic("l2", "x", "L2 norm of the finite elements", _l2),
    Statistic("rms", "x", "root mean square of the finite elements", _rms),
    _share("zero_fraction", "share of zeros", "n_zero"),
    _share("neg_fraction", "share of finite elements below zero", "n_neg"),
    _share("tiny_fraction", "share of non-zero subnormals", "n_tiny"),
    _share("saturated_low", "share at or below the declared lower bound", "n_sat_lo"),
    _share("saturated_high", "share at or above the declared upper bound", "n_sat_hi"),
    Statistic("saturated_fraction", "1", "share at or beyond the declared bounds", _saturated),
    _share("dead_fraction", "share of channels never active", "ch_dead", "ch_n"),
    _share("inactive_fraction", "share of channels active in under 1 %", "ch_low", "ch_n"),
    Statistic("update_mean", "x", "mean of x - previous", partial(_quotient, "u_sum", "u_n")),
    Statistic("update_std", "x", "standard deviation of x - previous", _update_std),
    Statistic("update_l2", "x", "L2 norm of x - previous", _update_l2),
    Statistic("update_rms", "x", "root mean square of x - previous", _update_rms),
    Statistic("update_max", "x", "largest |x - previous|", partial(_raw, INDEX["u_maxabs"])),
    Statistic("update_ratio", "1", "L2 norm of x - previous over that of previous", _update_ratio),
    Statistic(
        "update_excess",
        "x",
        "max(|x - previous| - 1e-5 |previous|): at or below 1e-8, numpy.allclose says unchanged",
        partial(_raw, INDEX["u_excess"]),
    ),
)

STATISTICS: Mapping[str, Statistic] = {
    statistic.name: statistic
    for statistic in (
        *(Statistic(c.name, c.unit, c.meaning, partial(_raw, i)) for i, c in enumerate(COLUMNS)),
        *_DERIVED,
    )
}


def statistic(name: str) -> Statistic:
    """Return the statistic of this name.

    Raises:
        ConfigError: nobody knows it; names the nearest.
    """
    found = STATISTICS.get(name)
    if found is None:
        near = get_close_matches(name, [*STATISTICS, VALUE], 1)
        raise ConfigError(
            "the name of a statistic", repr(name), f"did you mean {near[0]!r}?" if near else ""
        )
    return found


def column(obs: Observation, need: Need) -> Column:
    """Return one statistic of every tensor of a collection captured at this step, by row.

    The statistic ``value`` gives the collection's scalars, their rows -1. Computed once for an
    observation, however many rules ask: do not write into it.

    Raises:
        ConfigError: the statistic is unknown.
    """
    known = obs.memo.get(need)
    if known is None:
        known = obs.memo[need] = _column(obs, need)
    found: Column = known
    return found


def _column(obs: Observation, need: Need) -> Column:
    if need.stat == VALUE:
        scalars = obs.scalars.get(str(need.collection), {})
        values = np.array(list(scalars.values()), dtype=np.float64)
        return Column(tuple(scalars), np.full(len(scalars), -1, dtype=np.int64), values)
    compute = statistic(need.stat).compute
    names, rows = _captured(obs, str(need.collection))
    if rows.size == 0:
        return Column((), rows, np.empty(0))
    return Column(names, rows, compute(obs.stats[rows]))


def _captured(obs: Observation, collection: str) -> tuple[tuple[str, ...], IntArray]:
    """Names and rows captured; the layout's own cached objects where nothing is missing."""
    rows, layout = obs.captured(collection), obs.layout
    if rows.size and rows.size == layout.rows(collection).size:
        return layout.names_by_collection[collection], rows
    return tuple(layout.names[row] for row in rows.tolist()), rows
