"""Real-valued targets of elementwise losses: numbers that mark gaps, and how far outputs are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainwarden.model import Json, Observation
from trainwarden.rules import _batch
from trainwarden.rules._facts import functions
from trainwarden.rules._progress import main_loss

_SQUARED = "mse_loss"
ELEMENTWISE = frozenset({_SQUARED, "l1_loss", "smooth_l1_loss", "huber_loss"})
_RARE = 0.3  # a number that more targets have is no gap
_MISSING = 0.05  # share of the largest variance there can be
_FEWEST = 8  # targets of a batch
_NO_POINT = 1e-4  # more of it is missing than two points miss by rounding
_NINES, _ALL_NINES = 2, frozenset("9")
_ENDS = frozenset({32767.0, 32768.0, 65535.0, 2.0**31 - 1, 2.0**31, 2.0**32})  # of integers
_ENORMOUS = 1e9  # so are 1e20, 9.97e36 and -3.4e38, which files have for gaps
_SMOOTHED, _ENDS_OF_TANH = (-0.5, 1.5), (-1.0, 1.0)
_MANY_OUTSIDE = 0.2  # share of targets that no slip explains
_NEARER = 0.5  # of the distance between the number and the others
_NAN = math.nan


class Marker(NamedTuple):
    """A number apart from all other targets of a batch.

    ``value`` is the number, ``share`` that of the targets that have it, ``other`` the end of the
    others that is farthest from it, ``lacks`` the share of the largest variance that is not there.
    """

    value: float
    share: float
    other: float
    lacks: float


def regression(obs: Observation) -> tuple[str, Mapping[str, float]] | None:
    """Return the elementwise loss function and its facts; None if there is none, or another too."""
    found = functions(obs)
    if len(found) != 1:
        return None
    for title, facts in found.items():
        function = title.partition(":")[0]
        if function in ELEMENTWISE:
            return function, facts
    return None


def marker(low: float, high: float, mean: float, std: float) -> Marker | None:
    """Return the number that few targets have and that lies far from all others.

    No distribution between ``low`` and ``high`` has a variance above (high - mean)(mean - low), and
    only one that lies at these two ends alone has it (Bhatia and Davis, 2000). Near to it, a share
    of (high - mean) ÷ (high - low) lies at the lower end, the others closely at the upper.
    """
    most = (high - mean) * (mean - low)
    if not 0 < most < math.inf:
        return None
    lacks = 1.0 - std * std / most
    if not lacks <= _MISSING:
        return None
    share = (high - mean) / (high - low)
    if share <= _RARE:
        return Marker(low, share, high, lacks)
    return Marker(high, 1.0 - share, low, lacks) if share >= 1.0 - _RARE else None


def stands_for_none(number: float) -> bool:
    """Say whether files and scripts write this number for a missing one: nines, or an end."""
    size = abs(number)
    if size >= _ENORMOUS or size in _ENDS:
        return True
    digits = f"{size:.0f}"
    return size == round(size) and len(digits) >= _NINES and set(digits) == _ALL_NINES


def part_of_loss(function: str, facts: Mapping[str, float], one: Marker, loss: float) -> float:
    """Return the least share of the loss that the targets at a marker make, NaN if unknown.

    0 if an output has come half of the way to it: then it is an answer that is learned.
    """
    least, most = facts.get("input_min", _NAN), facts.get("input_max", _NAN)
    distance = least - one.value if one.value < one.other else one.value - most
    if not (0 < distance < math.inf and 0 < loss < math.inf):
        return _NAN
    if distance < _NEARER * abs(one.value - one.other):
        return 0.0
    return one.share * (distance * distance if function == _SQUARED else distance) / loss


def apart(obs: Observation) -> tuple[Marker, float] | None:
    """Return a number apart from the batch's other targets, its part of the loss; None if none."""
    found, loss = regression(obs), main_loss(obs)
    row = obs.layout.row_of.get("label/0", -1)
    if found is None or loss is None or not 0 <= row < obs.stats.shape[0]:
        return None
    function, facts = found
    low, high = facts.get("target_min", _NAN), facts.get("target_max", _NAN)
    mean = _batch.value(obs, row, "mean")
    if not low < mean < high or not obs.stats[row, 0] >= _FEWEST:
        return None
    one = marker(low, high, mean, facts.get("target_std", _NAN))
    if one is None or not stands_for_none(one.value):
        return None
    return one, part_of_loss(function, facts, one, loss[1])


def follow_marker(before: Sequence[Json], obs: Observation) -> Sequence[Json]:
    """Follow [number apart, saved steps with it, the first of them, other end, is it no point].

    Rare numbers are not in every batch: one without any changes nothing.
    """
    found = apart(obs)
    if found is None:
        return before
    one = found[0]
    if not before or before[0] != one.value:
        return [one.value, 1, obs.step, one.other, False]
    spread = before[4] or before[3] != one.other or one.lacks > _NO_POINT
    return [one.value, before[1] + 1, before[2], one.other, spread]


def least_distance(function: str, facts: Mapping[str, float]) -> float:
    """Return what an elementwise loss cannot be under for such outputs and targets; NaN if unknown.

    The distance between their ranges or, of squares, between their standard deviations: the root
    of the mean square is a norm. The mean size is at least the mean square ÷ the largest size.
    """
    gap = max(
        0.0,
        facts.get("input_min", _NAN) - facts.get("target_max", _NAN),
        facts.get("target_min", _NAN) - facts.get("input_max", _NAN),
    )
    apart = facts.get("input_std", _NAN) - facts.get("target_std", _NAN)
    if function == _SQUARED:
        return max(gap * gap, apart * apart)
    most = max(
        facts.get("input_max", _NAN) - facts.get("target_min", _NAN),
        facts.get("target_max", _NAN) - facts.get("input_min", _NAN),
    )
    return max(gap, apart * apart / most) if 0 < most < math.inf else gap


def no_probabilities(function: str, facts: Mapping[str, float], obs: Observation) -> bool:
    """Say whether a binary cross entropy is given real numbers: images with a mean of 0, prices.

    A fifth of them at least lies outside of [0, 1], some under -0.5 or above 1.5, as smoothed
    labels do not; they are neither two values, whose variance would be the largest there can be,
    nor do they lie between two integers other than -1 and 1, as numbers of classes do.
    """
    low, high = facts.get("target_min", _NAN), facts.get("target_max", _NAN)
    wild = low < _SMOOTHED[0] or high > _SMOOTHED[1]
    if not (function.startswith("binary_cross_entropy") and wild and high - low < math.inf):
        return False
    if not facts.get("impossible_targets", 0.0) >= _MANY_OUTSIDE:
        return False
    if low == round(low) and high == round(high) and (low, high) != _ENDS_OF_TANH:
        return False
    row, std = obs.layout.row_of.get("label/0", -1), facts.get("target_std", _NAN)
    mean = _batch.value(obs, row, "mean") if row >= 0 else _NAN
    return bool(0 < std * std <= (1.0 - _MISSING) * (high - mean) * (mean - low))
