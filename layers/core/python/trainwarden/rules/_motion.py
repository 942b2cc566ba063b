"""How far weights move and how large gradients are: shared by rules, computed once a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from trainwarden.model import TRAIN, FloatArray, IntArray, Observation
from trainwarden.rules._selection import clean, gathered, squares, weight_matrices
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS

T = TypeVar("T")
_INPUT = 5.0  # RMS
_ABS, _CHANGE = INDEX["sum_abs"], INDEX["u_maxabs"]
_SQUARE, _BEFORE = INDEX["u_sum2"], INDEX["u_w2"]


def _once(obs: Observation, key: str, make: Callable[[Observation], T]) -> T:
    known = obs.memo.get(key)
    if known is None:
        known = obs.memo[key] = make(obs)
    found: T = known
    return found


def update_ratios(obs: Observation) -> FloatArray:
    """L2 norm of the change since the last saved step over that of the weights, a matrix each.

    (T,) float64 over the trainable weight matrices that were captured; NaN where nothing is known
    or the weights were 0.
    """
    return _once(obs, "motion: update ratios", _update_ratios)


def _update_ratios(obs: Observation) -> FloatArray:
    rows = obs.among(weight_matrices(obs.layout))
    before = obs.stats[:, _BEFORE][rows]
    with np.errstate(all="ignore"):
        found: FloatArray = np.sqrt(obs.stats[:, _SQUARE][rows] / before)
    found[~(before > 0)] = np.nan
    return found


def violent(obs: Observation, ratio: float) -> bool:
    """Say whether any weight matrix may have moved by ``ratio`` of its size; cheap."""
    rows, stats = obs.among(weight_matrices(obs.layout)), obs.stats
    least = 0.99 * ratio * ratio
    calm = np.count_nonzero(stats[:, _SQUARE][rows] < least * stats[:, _BEFORE][rows])
    return bool(calm < rows.size)


def gradient_norm(obs: Observation) -> float:
    """L2 norm of all captured gradients, in loss units per parameter unit.

    NaN if there are none or one of them is not finite.
    """
    return _once(obs, "motion: gradient norm", _gradient_norm)


def _gradient_norm(obs: Observation) -> float:
    rows = obs.captured("gradients")
    if not rows.size or infinite_gradients(obs):
        return math.nan
    total = float(squares(obs)[rows].sum())
    return math.sqrt(total) if total > 0 else total * 0.0  # NaN passes through


def infinite_gradients(obs: Observation) -> bool:
    """Say whether a captured gradient holds NaN or infinity."""
    return not clean(obs) and _once(obs, "motion: infinite gradients", _infinite_gradients)


def _infinite_gradients(obs: Observation) -> bool:
    rows = obs.captured("gradients")
    return bool(rows.size) and bool(gathered(obs, rows)[:, 1:4].any())


def ends(obs: Observation, rows: IntArray) -> tuple[float, float]:
    """Mean |x| of the first and of the last of ``rows``, over all their elements."""
    key = ("motion: ends", id(rows))
    known: tuple[IntArray, tuple[float, float]] | None = obs.memo.get(key)
    if known is None:
        item, first, last = obs.stats.item, int(rows[0]), int(rows[-1])
        found = (
            item(first, _ABS) / (item(first, 0) or 1.0),
            item(last, _ABS) / (item(last, 0) or 1.0),
        )
        known = obs.memo[key] = (rows, found)
    return known[1]


def changes(obs: Observation, rows: IntArray) -> tuple[FloatArray, int]:
    """Largest |change| of each of ``rows`` since the saved step before, (T,); how many moved."""
    key = ("motion: changes", id(rows))
    known: tuple[IntArray, FloatArray, int] | None = obs.memo.get(key)
    if known is None:
        found = obs.stats[:, _CHANGE][rows]
        known = obs.memo[key] = (rows, found, int(np.count_nonzero(found > 0)))
    return known[1:]


def learning_rate(obs: Observation) -> float:
    """Learning rate of the first parameter group; NaN if unknown."""
    rate = float(obs.scalars.get("optimizer", {}).get("lr_0", math.nan))
    return rate if math.isfinite(rate) else math.nan


def trains(obs: Observation) -> bool:
    """Say whether this is a training step that the optimizer took."""
    return obs.mode is TRAIN and obs.scalars.get("loop", {}).get("stepped", 1.0) != 0.0


def bad_loss(obs: Observation) -> bool:
    """Say whether a loss is NaN or infinite."""
    return _once(obs, "motion: bad loss", _bad_loss)


def _bad_loss(obs: Observation) -> bool:
    return not all(map(math.isfinite, obs.scalars.get("losses", {}).values()))


def unusual_input(obs: Observation) -> bool:
    """Say whether an input of floats is far from standardised: its RMS is above 5."""
    rows = obs.captured("inputs")
    floats = [int(r) for r in rows if obs.layout.tensors[int(r)].dtype.startswith(("float", "bf"))]
    return bool(floats) and bool(np.any(STATISTICS["rms"].compute(obs.stats[floats]) > _INPUT))
