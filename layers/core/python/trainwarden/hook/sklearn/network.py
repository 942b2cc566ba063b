"""An estimator's layers: a linear model is a network of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trainwarden.hook.sklearn.objectives import SOFTMAX, Objective
from trainwarden.model import FloatArray

Bounds = tuple[float, float] | None


class Function(NamedTuple):
    """An activation function: name of the kind, where it saturates, itself, its slope there."""

    kind: str
    bounds: Bounds
    of: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], FloatArray]  # from what it returned


FUNCTIONS: Mapping[str, Function] = {
    "identity": Function("Identity", None, lambda x: x, np.ones_like),
    "relu": Function("ReLU", None, lambda x: np.maximum(x, 0.0), lambda a: (a > 0).astype(float)),
    "tanh": Function("Tanh", (-0.96, 0.96), np.tanh, lambda a: 1.0 - a * a),
    "logistic": Function(
        "Sigmoid", (0.02, 0.98), lambda x: np.exp(-np.logaddexp(0.0, -x)), lambda a: a * (1.0 - a)
    ),
}


@dataclass(frozen=True)
class Network:
    """The weights of an estimator at one time.

    Attributes:
        weights: (outputs, inputs) of each layer.
        biases: (outputs,) of each.
        names: Of weights and bias of each layer, as scikit-learn calls them.
        hidden: Between layers.
        objective: What is minimised.
    """

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]
    names: tuple[tuple[str, str], ...]
    hidden: Function
    objective: Objective

    def forward(self, x: Any) -> list[Any]:
        """Return what enters each layer, and the scores (N, K)."""
        passed = [x]
        with np.errstate(all="ignore"):
            for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), 1):
                scores = np.asarray(passed[-1] @ weight.T) + bias
                last = number == len(self.weights)
                passed.append(scores if last else self.hidden.of(scores))
        return passed

    def backward(
        self, passed: Sequence[Any], slopes: FloatArray
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Return the gradients of weights and bias of each layer."""
        found = []
        with np.errstate(all="ignore"):
            for weight, entered in zip(self.weights[::-1], passed[-2::-1], strict=True):
                gradient = np.ascontiguousarray(np.asarray(entered.T @ slopes).T)
                found.append((gradient, slopes.sum(axis=0)))
                if weight is not self.weights[0]:
                    slopes = (slopes @ weight) * self.hidden.slope(entered)
        return found[::-1]

    def zeros(self) -> Network:
        """Return it as linear models begin."""
        return Network(
            tuple(map(np.zeros_like, self.weights)),
            tuple(map(np.zeros_like, self.biases)),
            self.names,
            self.hidden,
            self.objective,
        )


def network(model: Any) -> Network | None:
    """Copy the layers of an estimator; None if it has none (yet)."""
    if hasattr(model, "coefs_"):
        softmax = getattr(model, "out_activation_", "") == "softmax"
        loss = SOFTMAX if softmax else str(getattr(model, "loss", ""))
        return Network(
            tuple(np.array(one.T, dtype=np.float64, order="C") for one in model.coefs_),
            tuple(np.array(one, dtype=np.float64) for one in model.intercepts_),
            tuple((f"coefs_.{i}", f"intercepts_.{i}") for i in range(len(model.coefs_))),
            FUNCTIONS[model.activation],
            Objective(loss, hasattr(model, "classes_")),
        )
    if getattr(model, "coef_", None) is None or not hasattr(model, "intercept_"):
        return None
    weight = np.array(np.atleast_2d(model.coef_), dtype=np.float64, order="C")
    return Network(
        (weight,),
        (np.resize(np.array(model.intercept_, dtype=np.float64), len(weight)),),
        (("coef_", "intercept_"),),
        FUNCTIONS["identity"],
        Objective(
            str(getattr(model, "loss", "")),
            hasattr(model, "classes_"),
            float(getattr(model, "epsilon", 0.1)),
        ),
    )


def rate(model: Any) -> float:
    """Return the learning rate where the estimator's settings tell it; else NaN."""
    schedule = getattr(model, "learning_rate", "")
    if hasattr(model, "learning_rate_init"):
        known = schedule == "constant" or model.solver == "adam"
        return float(model.learning_rate_init) if known else float("nan")
    if schedule == "constant":
        return float(model.eta0)
    if schedule == "invscaling" and hasattr(model, "t_"):
        return float(model.eta0 / model.t_**model.power_t)
    if schedule == "optimal" and hasattr(model, "t_") and model.alpha > 0:
        first = model.alpha**-0.25  # scikit-learn's own guess of a weight's size
        return float(1.0 / (1.0 / first + model.alpha * (model.t_ - 1.0)))
    return float("nan")


def updates(model: Any, rows: int) -> float:
    """Return how often a call with so many rows changes the weights: SGD once for each row."""
    if not hasattr(model, "batch_size"):
        return float(rows)
    size = 200 if model.batch_size == "auto" else int(model.batch_size)  # scikit-learn's own
    return float(-(-rows // max(size, 1)))


def strides(model: Any) -> bool:
    """Say whether the ``optimal`` schedule is still at its large first steps."""
    return getattr(model, "learning_rate", "") == "optimal" and not rate(model) <= 1
