"""A table of columns from 0.001 to 4,000, straight into stochastic gradient descent.

python examples/train_sklearn.py                 # records to .trainwarden/runs
python examples/train_sklearn.py --standardise   # columns of mean 0 and deviation 1
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import StandardScaler

import trainwarden

TRAINED = 400  # rows


def main() -> None:
    """Train and print the share of right answers on other rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--standardise", action="store_true")
    arguments = parser.parse_args()
    random = np.random.RandomState(0)
    data, target = load_breast_cancer(return_X_y=True)
    order = random.permutation(len(data))
    data, target = data[order], target[order]
    if arguments.standardise:
        data = StandardScaler().fit(data[:TRAINED]).transform(data)
    validation = data[TRAINED:], target[TRAINED:]
    model = SGDClassifier(loss="log_loss", random_state=0)
    with trainwarden.PartialFit(model, validation=validation) as watched:
        for _ in range(arguments.steps):
            rows = random.choice(TRAINED, 32, replace=False)
            watched.partial_fit(data[rows], target[rows], classes=[0, 1])
    print({"accuracy": round(model.score(*validation), 3)})


if __name__ == "__main__":
    main()
