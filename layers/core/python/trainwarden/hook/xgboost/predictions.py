"""Labels and predictions of a fixed part of the training matrix."""

from __future__ import annotations

import numpy as np
import xgboost

from trainwarden.hook.boosted.predictions import MAX_ROWS, Seen, Task, look, spread_rows

_BINARY = ("binary:logistic", "binary:logitraw", "binary:hinge")
_MULTI = ("multi:softprob", "multi:softmax")


class Sample:
    """Evenly spread rows of the training matrix, the same at each look.

    Args:
        train: The training matrix.
        objective: XGBoost's name of what is minimised.
    """

    def __init__(self, train: xgboost.DMatrix, objective: str) -> None:
        self.rows = int(train.num_row())
        # Groups of a ranking cannot be cut: such a matrix is looked at as a whole, or not at all.
        whole = self.rows <= MAX_ROWS or objective.startswith("rank:")
        self._matrix = train if whole else train.slice(spread_rows(self.rows))
        self._labels = np.asarray(self._matrix.get_label(), dtype=np.float32)
        self._skipped = objective.startswith("rank:") and self.rows > MAX_ROWS
        self._task = Task(
            objective.partition(":")[2],
            "binary" if objective in _BINARY else "multi" if objective in _MULTI else "",
            limit=0.0 if objective == "binary:logitraw" else 0.5,
            scores=objective != "binary:hinge",  # it answers 0 or 1
            weighted=np.asarray(self._matrix.get_weight()).size > 0,
        )

    def look(self, model: xgboost.Booster) -> Seen:
        """Predict the rows and compare with their labels."""
        if self._labels.size == 0 or self._skipped:
            return Seen()
        predicted = np.asarray(model.predict(self._matrix), dtype=np.float32)
        return look(self._labels, predicted, self._task)
