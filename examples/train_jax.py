"""A small JAX network that learns to tell wines apart, with a learning rate far too high.

python examples/train_jax.py                        # records to .trainwarden/runs
python examples/train_jax.py --learning-rate 0.1    # learns
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

import trainwarden


def begin(key: Any, widths: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Draw the weights of dense layers."""
    pairs = list(pairwise(widths))
    return {
        f"Dense_{i}": {
            "kernel": jax.random.normal(k, pair) * (2.0 / pair[0]) ** 0.5,
            "bias": jnp.zeros(pair[1]),
        }
        for i, (k, pair) in enumerate(zip(jax.random.split(key, len(pairs)), pairs, strict=True))
    }


def loss_of(params: dict[str, dict[str, Any]], x: Any, y: Any) -> Any:
    """Return the mean cross entropy."""
    for i in range(len(params)):
        x = x @ params[f"Dense_{i}"]["kernel"] + params[f"Dense_{i}"]["bias"]
        x = jnp.maximum(x, 0) if i + 1 < len(params) else x
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1).mean()


def main() -> None:
    """Train and print the loss on other rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=30.0)
    arguments = parser.parse_args()
    random, (data, target) = np.random.RandomState(0), load_wine(return_X_y=True)
    order = random.permutation(len(data))
    x, y = scale(data)[order].astype(np.float32), target[order]
    params = begin(jax.random.PRNGKey(0), (13, 32, 3))
    step = jax.jit(jax.value_and_grad(loss_of))
    rate = arguments.learning_rate
    with trainwarden.PytreeWatch() as watch:
        for number in range(arguments.steps):
            rows = random.choice(130, 32, replace=False)
            loss, grads = step(params, x[rows], y[rows])
            watch.observe(params, grads, loss, inputs=x[rows], learning_rate=rate)
            params = jax.tree_util.tree_map(lambda w, g: w - rate * g, params, grads)
            if number % 10 == 0:
                watch.evaluate(loss_of(params, x[130:], y[130:]))
    print({"validation loss": round(float(loss_of(params, x[130:], y[130:])), 3)})


if __name__ == "__main__":
    main()
