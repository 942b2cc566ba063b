"""Boosting far past the best round: 320 patients, and trees that go on learning their rows.

python examples/train_lightgbm.py                                 # records to .trainwarden/runs
python examples/train_lightgbm.py --leaves 4 --learning-rate 0.05 --rounds 60   # generalises
"""

from __future__ import annotations

import argparse

import lightgbm
import numpy as np
from sklearn.datasets import load_diabetes

import trainwarden


def main() -> None:
    """Train and print the losses of the last round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--leaves", type=int, default=31)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    arguments = parser.parse_args()
    data, target = load_diabetes(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(data))
    train, test = order[:320], order[320:]
    rows = lightgbm.Dataset(data[train], target[train])
    validation = lightgbm.Dataset(data[test], target[test], reference=rows)
    parameters = {
        "objective": "regression",
        "num_leaves": arguments.leaves,
        "learning_rate": arguments.learning_rate,
        "num_threads": 1,
        "verbosity": -1,
    }
    losses: dict[str, dict[str, list[float]]] = {}
    lightgbm.train(
        parameters,
        rows,
        arguments.rounds,
        valid_sets=[rows, validation],
        valid_names=["train", "validation"],
        callbacks=[
            lightgbm.record_evaluation(losses),
            trainwarden.LightGBMCallback(rows),  # the one line that watches
        ],
    )
    print({name: round(metrics["l2"][-1] ** 0.5, 3) for name, metrics in losses.items()})


if __name__ == "__main__":
    main()
