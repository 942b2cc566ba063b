"""Predictions against labels: counts, facts and rows to reduce."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.hook.boosted.spread import ranked, residual_facts
from trainwarden.model import Collection, TensorInfo

MAX_ROWS = 2000  # predicted at each saved round
MAX_CONFUSED = 30  # classes of which the confusion is counted
Floats = npt.NDArray[np.float32]


class Task(NamedTuple):
    """What is predicted.

    Attributes:
        name: Of the objective, for its facts.
        kind: ``binary``, ``multi`` or empty for numbers.
        limit: A score above it says yes.
        scores: The binary prediction is a score, not an answer.
        weighted: Rows have weights.
    """

    name: str
    kind: str = ""
    limit: float = 0.5
    scores: bool = True
    weighted: bool = False


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


def spread_rows(count: int) -> npt.NDArray[np.int32]:
    """Return positions of up to ``MAX_ROWS`` of ``count`` rows, evenly spread."""
    return np.unique(np.linspace(0, max(count - 1, 0), MAX_ROWS).astype(np.int32))


def look(labels: Floats, predicted: Floats, task: Task) -> Seen:
    """Compare predictions (N,) or (N, classes) with labels (N,)."""
    seen = Seen()
    seen.tensors += [_info("label/0", Collection.LABELS, labels)]
    seen.tensors += [_info("output/0", Collection.OUTPUTS, predicted)]
    if task.kind == "binary":
        _classes(seen, labels, (predicted > task.limit).astype(np.int64), task, 2)
        if task.scores:
            seen.labels["ranked/0"] = ranked(predicted, labels)
    elif task.kind == "multi":
        given = predicted.argmax(axis=1) if predicted.ndim > 1 else predicted
        top = max(int(labels.max()), int(np.max(given)))
        _classes(seen, labels, given.astype(np.int64), task, top + 1)
    elif predicted.shape == labels.shape:
        residuals = labels - predicted
        seen.tensors += [_info("residual/0", Collection.OUTPUTS, residuals)]
        seen.residuals = residual_facts(labels, residuals)
    return seen


def _classes(
    seen: Seen, wanted: Floats, predicted: npt.NDArray[np.int64], task: Task, classes: int
) -> None:
    labels = wanted.astype(np.int64)
    seen.labels = class_tables(labels, predicted, classes)
    seen.facts = {
        f"{task.name}.classes": float(classes),
        f"{task.name}.accuracy": float((labels == predicted).mean()),
        f"{task.name}.weighted": float(task.weighted),
    }


def class_tables(
    labels: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64], classes: int
) -> dict[str, dict[int, int]]:
    """Count labels, predictions, right ones, and of few classes the confusion."""
    found = {
        "label/0": counts(labels),
        "predicted/0": counts(predicted),
        "correct/0": counts(labels[labels == predicted]),
    }
    if classes <= MAX_CONFUSED:
        found["confusion/0"] = counts(labels * classes + predicted)
    return found


def counts(values: npt.NDArray[Any]) -> dict[int, int]:
    """Count each value."""
    found, numbers = np.unique(values, return_counts=True)
    return {int(value): int(number) for value, number in zip(found, numbers, strict=True)}


def _info(name: str, collection: Collection, values: Floats) -> tuple[TensorInfo, Floats]:
    shape = tuple(values.shape[1:])
    return TensorInfo(name, collection.value, shape, "float32"), values
