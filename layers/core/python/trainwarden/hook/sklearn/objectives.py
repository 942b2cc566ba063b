"""scikit-learn's losses of scores, and their slopes: what ``partial_fit`` minimises, not its sum.

All but ``cross_entropy`` are of one score each, as in one-against-all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from trainwarden.model import FloatArray

Curve = Callable[[FloatArray, float], tuple[FloatArray, FloatArray]]  # losses and their slopes


class Objective(NamedTuple):
    """Name of a loss, whether it judges classes, and the width of what costs nothing."""

    name: str
    classes: bool
    epsilon: float = 0.1


def _log(z: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    return np.logaddexp(0.0, -z), -np.exp(-np.logaddexp(0.0, z))


def _hinge(z: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    return np.maximum(1.0 - z, 0.0), -(z < 1).astype(np.float64)


def _squared_hinge(z: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    short = np.maximum(1.0 - z, 0.0)
    return short**2, -2.0 * short


def _modified_huber(z: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    near = z >= -1
    short = np.maximum(1.0 - z, 0.0)
    return np.where(near, short**2, -4.0 * z), np.where(near, -2.0 * short, -4.0)


def _perceptron(z: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    return np.maximum(-z, 0.0), -(z <= 0).astype(np.float64)


def _squared_error(r: FloatArray, _: float) -> tuple[FloatArray, FloatArray]:
    return 0.5 * r**2, r


def _huber(r: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    size, near = np.abs(r), np.abs(r) <= epsilon
    far = epsilon * size - 0.5 * epsilon**2
    return np.where(near, 0.5 * r**2, far), np.clip(r, -epsilon, epsilon)


def _insensitive(r: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    over = np.maximum(np.abs(r) - epsilon, 0.0)
    return over, np.sign(r) * (over > 0)


def _squared_insensitive(r: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    over = np.maximum(np.abs(r) - epsilon, 0.0)
    return over**2, 2.0 * np.sign(r) * over


MARGINS: Mapping[str, Curve] = {  # of label (±1) times score
    "log_loss": _log,
    "hinge": _hinge,
    "squared_hinge": _squared_hinge,
    "modified_huber": _modified_huber,
    "perceptron": _perceptron,
}
RESIDUALS: Mapping[str, Curve] = {  # of score - label
    "squared_error": _squared_error,
    "huber": _huber,
    "epsilon_insensitive": _insensitive,
    "squared_epsilon_insensitive": _squared_insensitive,
}
SOFTMAX = "cross_entropy"


def judge(
    objective: Objective, scores: FloatArray, wanted: FloatArray
) -> tuple[float, FloatArray] | None:
    """Return the mean loss and its slope along each score; None for a loss not known here.

    Args:
        objective: What is minimised.
        scores: (N, K) before any squashing.
        wanted: (N, K) targets; of classes 1 for what is right and 0 or -1 for the rest.
    """
    with np.errstate(all="ignore"):  # what overflows is to be seen
        if objective.name == SOFTMAX:
            shifted = scores - scores.max(axis=1, keepdims=True)
            logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            return float(-(wanted * logs).sum(axis=1).mean()), (np.exp(logs) - wanted) / len(scores)
        if objective.name in MARGINS:
            signs = np.where(wanted > 0, 1.0, -1.0)
            losses, slopes = MARGINS[objective.name](signs * scores, objective.epsilon)
            return float(losses.mean()), signs * slopes / scores.size
        if objective.name in RESIDUALS:
            losses, slopes = RESIDUALS[objective.name](scores - wanted, objective.epsilon)
            return float(losses.mean()), slopes / scores.size
    return None
