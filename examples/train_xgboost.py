"""Boosted trees that remember their rows: 320 patients, trees without a limit.

python examples/train_xgboost.py                  # records to .trainwarden/runs
python examples/train_xgboost.py --max-depth 3    # trees that generalise
"""

from __future__ import annotations

import argparse

import numpy as np
import xgboost
from sklearn.datasets import load_diabetes

import trainwarden

DEFAULT_DEPTH = 6  # XGBoost's


def main() -> None:
    """Train and print the losses of the last round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--max-depth", type=int, default=14)
    arguments = parser.parse_args()
    data, target = load_diabetes(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(data))
    train, test = order[:320], order[320:]
    matrix = xgboost.DMatrix(data[train], target[train])
    validation = xgboost.DMatrix(data[test], target[test])
    deep = arguments.max_depth > DEFAULT_DEPTH
    parameters = {
        "objective": "reg:squarederror",
        "max_depth": arguments.max_depth,
        "eta": 0.3 if deep else 0.05,
        "min_child_weight": 0 if deep else 5,
        "reg_lambda": 0 if deep else 1,
        "nthread": 1,
    }
    losses: dict[str, dict[str, list[float]]] = {}
    xgboost.train(
        parameters,
        matrix,
        arguments.rounds,
        evals=[(matrix, "train"), (validation, "validation")],
        evals_result=losses,
        verbose_eval=False,
        callbacks=[trainwarden.XGBoostCallback(matrix)],  # the one line that watches
    )
    print({name: round(metrics["rmse"][-1], 3) for name, metrics in losses.items()})


if __name__ == "__main__":
    main()
