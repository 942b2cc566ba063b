"""Labels and predictions of a fixed part of the training data."""

from __future__ import annotations

import os
from typing import Any

import lightgbm
import numpy as np

from trainwarden.hook.boosted.predictions import Floats, Seen, Task, look, spread_rows
from trainwarden.hook.session import Session

_KINDS = {
    "binary": "binary",
    "multiclass": "multi",
    "multiclassova": "multi",
}
_THREADS = ("num_threads", "num_thread", "nthread", "nthreads", "n_jobs")


class Sample:
    """Evenly spread rows of the training data, the same at each look.

    Args:
        data: What ``Booster.predict`` takes: (N, features).
        labels: (N,).
        weighted: Rows have weights.
    """

    def __init__(self, data: Any, labels: Any, *, weighted: bool) -> None:
        wanted = np.asarray(labels, dtype=np.float32).reshape(-1)
        self.rows = len(wanted)
        chosen = spread_rows(self.rows)
        self._data = data.iloc[chosen] if hasattr(data, "iloc") else _rows(data, chosen)
        self._labels: Floats = wanted[chosen]
        self._weighted = weighted

    @classmethod
    def of(
        cls, train: lightgbm.Dataset | tuple[Any, Any] | None, session: Session
    ) -> Sample | None:
        """Return the rows of a dataset, or of ``(X, y)``; None if they are not there any more."""
        weight = None
        if isinstance(train, lightgbm.Dataset):
            data, labels, weight = train.data, train.label, train.weight
        else:
            data, labels = train if train is not None else (None, None)
        if train is None:
            return None
        if data is None or labels is None or isinstance(data, str | os.PathLike) or not len(labels):
            session.say(
                "labels and predictions are not captured: the Dataset does not hold its rows any "
                "more; make the callback before the Dataset is used, or give it (X, y)"
            )
            return None
        return cls(data, labels, weighted=weight is not None)

    def look(self, model: lightgbm.Booster, objective: str, params: dict[str, Any]) -> Seen:
        """Predict the rows and compare with their labels."""
        # Predicting sets the number of threads for all that comes: keep the training's.
        threads = {name: params[name] for name in _THREADS if name in params}
        rounds = model.current_iteration()
        found = model.predict(self._data, num_iteration=rounds, **threads)
        predicted = np.asarray(found, dtype=np.float32)
        task = Task(objective, _KINDS.get(objective, ""), weighted=self._weighted)
        return look(self._labels, predicted, task)


def _rows(data: Any, chosen: Any) -> Any:
    return (np.asarray(data) if isinstance(data, list) else data)[chosen]
