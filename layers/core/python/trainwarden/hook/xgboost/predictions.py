"""Labels and predictions of a fixed part of the training matrix."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xgboost

from trainwarden.hook.xgboost.spread import ranked, residual_facts
from trainwarden.model import Collection, TensorInfo

MAX_ROWS = 2000  # predicted at each saved round
MAX_CONFUSED = 30  # classes of which the confusion is counted
_BINARY = ("binary:logistic", "binary:logitraw", "binary:hinge")
_MULTI = ("multi:softprob", "multi:softmax")
Floats = npt.NDArray[np.float32]


@dataclass
class Seen:
    """What one look brought.

    Attributes:
        labels: Side tables: ``label/0``, ``predicted/0``, ``correct/0`` class → rows;
            ``confusion/0`` label * classes + prediction → rows; ``ranked/0`` of a binary model
            2 * rank of the score + label → rows.
        facts: Of collection ``objective``.
        residuals: Of collection ``residuals``, of a regression.
        tensors: Rows to reduce.
    """

    labels: dict[str, dict[int, int]] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)
    tensors: list[tuple[TensorInfo, Floats]] = field(default_factory=list)


class Sample:
    """Evenly spread rows of the training matrix, the same at each look.

    Args:
        train: The training matrix.
        objective: XGBoost's name of what is minimised.
    """

    def __init__(self, train: xgboost.DMatrix, objective: str) -> None:
        self.rows = int(train.num_row())
        chosen = np.unique(np.linspace(0, max(self.rows - 1, 0), MAX_ROWS).astype(np.int32))
        # Groups of a ranking cannot be cut: such a matrix is looked at as a whole, or not at all.
        whole = self.rows <= MAX_ROWS or objective.startswith("rank:")
        self._matrix = train if whole else train.slice(chosen)
        self._labels = np.asarray(self._matrix.get_label(), dtype=np.float32)
        self._objective = objective
        self._skipped = objective.startswith("rank:") and self.rows > MAX_ROWS

    def look(self, model: xgboost.Booster) -> Seen:
        """Predict the rows and compare with their labels."""
        seen = Seen()
        if self._labels.size == 0 or self._skipped:
            return seen
        predicted = np.asarray(model.predict(self._matrix), dtype=np.float32)
        seen.tensors += [_info("label/0", Collection.LABELS, self._labels)]
        seen.tensors += [_info("output/0", Collection.OUTPUTS, predicted)]
        if self._objective in _BINARY:
            limit = 0.0 if self._objective == "binary:logitraw" else 0.5
            self._classes(seen, (predicted > limit).astype(np.int64), 2)
            if self._objective != "binary:hinge":  # it answers 0 or 1
                seen.labels["ranked/0"] = ranked(predicted, self._labels)
        elif self._objective in _MULTI:
            given = predicted.argmax(axis=1) if predicted.ndim > 1 else predicted
            top = max(int(self._labels.max()), int(np.max(given)))
            self._classes(seen, given.astype(np.int64), top + 1)
        elif predicted.shape == self._labels.shape:
            residuals = self._labels - predicted
            seen.tensors += [_info("residual/0", Collection.OUTPUTS, residuals)]
            seen.residuals = residual_facts(self._labels, residuals)
        return seen

    def _classes(self, seen: Seen, predicted: npt.NDArray[np.int64], classes: int) -> None:
        labels = self._labels.astype(np.int64)
        right = labels == predicted
        seen.labels["label/0"] = _counts(labels)
        seen.labels["predicted/0"] = _counts(predicted)
        seen.labels["correct/0"] = _counts(labels[right])
        if classes <= MAX_CONFUSED:
            seen.labels["confusion/0"] = _counts(labels * classes + predicted)
        name = self._objective.partition(":")[2]
        seen.facts = {
            f"{name}.classes": float(classes),
            f"{name}.accuracy": float(right.mean()),
            f"{name}.weighted": float(np.asarray(self._matrix.get_weight()).size > 0),
        }


def _counts(values: npt.NDArray[np.int64]) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(found, counts, strict=True)}


def _info(name: str, collection: Collection, values: Floats) -> tuple[TensorInfo, Floats]:
    shape = tuple(values.shape[1:])
    return TensorInfo(name, collection.value, shape, "float32"), values
