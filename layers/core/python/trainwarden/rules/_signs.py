"""Losses below 0 that are the negative of what cannot be: distances and likelihoods of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from trainwarden.model import Observation
from trainwarden.rules import _batch
from trainwarden.rules._facts import functions
from trainwarden.rules._targets import ELEMENTWISE, least_distance
from trainwarden.stats.catalog import INDEX

_BINARY = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
_GUESSED = 1.5 * math.log(2)  # well above what a guess has
_WRONG, _MIXED = 1 / 6, 0.1  # share of right answers, a third of a guess's; targets' deviation
_APART, _PART, _ROUNDED = (
    10.0,
    0.5,
    1.05,
)  # of the targets' variance; of the least and most distance
_STARTS, _FAR = (0.7, 3.0), 5.0  # of ln C, where torch's function is known
_NEAR, _RUNAWAY = 0.05, 20.0  # of ln C, where it is not
_UNLEARNED = 2.0  # times what a guess gets right
_SCORES = 0.05  # of the distance of the farthest scores: a mean over samples is less than that
_MANY = 3  # classes: what looks like ln 2 may be anything
_TOKENS = 2  # dimensions of scores of tokens, classes last; of pixels they come first
_MIN, _MAX = INDEX["min"], INDEX["max"]
_NAN = math.nan


class Negated(NamedTuple):
    """What a loss below 0 is the negative of: ``what``, and a ``sign`` of that in words."""

    what: str
    sign: str


def scatter(obs: Observation) -> float:
    """Return the variance of the output's elements, 0 if it is not known."""
    row = obs.layout.row_of.get("output/0", -1)
    deviation = _batch.value(obs, row, "std") if row >= 0 else _NAN
    return deviation * deviation if deviation >= 0 else 0.0


def negated(obs: Observation, first: float, variance: float, loss: float) -> Negated | None:
    """Say what a loss that was always below 0 is the negative of; None if it may be meant so.

    Args:
        obs: A training step.
        first: The run's first loss.
        variance: That of the output's elements then.
        loss: The loss now.
    """
    found = functions(obs)
    if not found:
        return _classes(obs, first, variance, loss) or _squares(obs, loss)
    if len(found) > 1:
        return None
    title, facts = next(iter(found.items()))
    function = title.partition(":")[0]
    if function in _BINARY:
        return _binary(function, facts, loss)
    if function in ELEMENTWISE:
        return _elementwise(function, facts, loss)
    if function == "cross_entropy" or facts.get("log_rows_sum_to_one", 0.0) >= 1:
        return _likelihood(function, facts, first, loss)
    return None


def _binary(function: str, facts: Mapping[str, float], loss: float) -> Negated | None:
    right = facts.get("accuracy", 1.0)
    if not (loss < -_GUESSED and right <= _WRONG and facts.get("target_std", 0.0) > _MIXED):
        return None
    if facts.get("impossible_targets", 1.0) > 0:
        return None
    return Negated(function, f"only {right:.1%} of its answers are right, less than of a guess")


def _elementwise(function: str, facts: Mapping[str, float], loss: float) -> Negated | None:
    deviation = facts.get("target_std", _NAN)
    farthest = max(
        facts.get("input_max", _NAN) - facts.get("target_min", _NAN),
        facts.get("target_max", _NAN) - facts.get("input_min", _NAN),
    )
    if function == "mse_loss":
        deviation, farthest = deviation * deviation, farthest * farthest
    least = least_distance(function, facts)
    gone = _gone(loss, least, farthest, deviation)
    return Negated(function, _away(least, deviation)) if gone else None


def _gone(loss: float, least: float, most: float, unit: float) -> bool:
    """Say whether outputs have left the targets, of spread ``unit``, and the loss is minus that.

    ``least`` and ``most`` are what the distance may be.
    """
    return 0 < _APART * unit <= least < math.inf and _PART * least <= -loss <= _ROUNDED * most


def _away(least: float, unit: float) -> str:
    return (
        f"outputs are so far from the targets that it is {least:.4g} at least, and {unit:.4g} "
        "if they were at their mean"
    )


def _likelihood(
    function: str, facts: Mapping[str, float], first: float, loss: float
) -> Negated | None:
    count, right = facts.get("classes", 0.0), facts.get("accuracy", 1.0)
    if not (_MANY <= count < math.inf and right * count <= _UNLEARNED):
        return None
    guess, low, high = math.log(count), *(facts.get(f"input_{end}", _NAN) for end in ("min", "max"))
    if not (_STARTS[0] * guess <= -first <= _STARTS[1] * guess and loss <= -_FAR * guess):
        return None
    if not _SCORES * (high - low) <= -loss <= high - low + guess:
        return None
    return Negated(function, f"only {right:.1%} of {count:.0f} classes are answered right")


def _classes(obs: Observation, first: float, variance: float, loss: float) -> Negated | None:
    """The mean logarithm of the right class's probability, from -ln C down instead of up to 0.

    Scores of a small variance v that know nothing have a cross entropy of about ln C + v/2, and
    those that lie far apart the difference of two of them.
    """
    row = obs.layout.row_of.get("output/0", -1)
    if not 0 <= row < obs.stats.shape[0]:
        return None
    shape = obs.layout.tensors[row].shape
    count = (shape[0] if len(shape) > _TOKENS else shape[-1]) if shape else 0
    if count < _MANY:
        return None
    guess = math.log(count)
    near = variance <= guess and -guess * (1 + _NEAR) - variance <= first <= -guess * (1 - _NEAR)
    if not near:
        return None
    scores = float(obs.stats[row, _MAX]) - float(obs.stats[row, _MIN])
    if not (loss <= -_RUNAWAY * guess and _SCORES * scores <= -loss <= scores + guess):
        return None
    return Negated(
        f"a likelihood of {count} classes", f"it began at -ln {count}, and falls without end"
    )


def _squares(obs: Observation, loss: float) -> Negated | None:
    """Squares written by hand: a root mean square is a norm, so means and deviations bound it."""
    output, label = (obs.layout.row_of.get(name, -1) for name in ("output/0", "label/0"))
    known = obs.stats.shape[0]
    if not (0 <= output < known and 0 <= label < known):
        return None
    if obs.stats[output, 0] != obs.stats[label, 0]:
        return None
    mean, center, deviation, spread = (
        _batch.value(obs, row, name) for name in ("mean", "std") for row in (output, label)
    )
    gap, apart, both = mean - center, deviation - spread, deviation + spread
    least, most, unit = gap * gap + apart * apart, gap * gap + both * both, spread * spread
    return (
        Negated("a squared error", _away(least, unit)) if _gone(loss, least, most, unit) else None
    )
