"""Labels against predictions: counts, confusion, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainwarden.model import IntArray, Mode, Observation
from trainwarden.report.reading import Recorded
from trainwarden.report.values import Line

LABEL, PREDICTED, CORRECT, CONFUSION = "label/0", "predicted/0", "correct/0", "confusion/0"
MAX_CLASSES = 30  # of which a confusion matrix is recorded
_BATCHES = 10  # one batch says little: as many of the last saved steps are added up
Counts = Mapping[int, int]


@dataclass(frozen=True)
class Classes:
    """Labels and predictions of one mode at the end of a run.

    Attributes:
        steps: First and last saved step that were counted.
        labels: Class → how often it was the label.
        predicted: Class → how often it was predicted.
        correct: Class → how often it was the label and was predicted.
        confusion: (C, C), rows by label, columns by prediction; None if it was not recorded.
    """

    steps: tuple[int, int]
    labels: Counts
    predicted: Counts
    correct: Counts
    confusion: IntArray | None


def counted(run: Recorded, mode: Mode) -> Classes | None:
    """Count labels and predictions at the end of a run; None if there are none.

    A boosted run looks at the same rows each time, an evaluation at its whole set: the last one
    counts. Training batches differ: the last ten saved are added up.
    """
    found = [obs for obs in run.of(mode) if obs.labels.get(LABEL)]
    if not found:
        return None
    last = found[-1:] if run.boosted or mode is not Mode.TRAIN else found[-_BATCHES:]
    labels, predicted, correct = (_sum(last, name) for name in (LABEL, PREDICTED, CORRECT))
    return Classes((last[0].step, last[-1].step), labels, predicted, correct, _confusion(last))


def _sum(observations: Sequence[Observation], name: str) -> dict[int, int]:
    added: dict[int, int] = {}
    for obs in observations:
        for label, count in obs.labels.get(name, {}).items():
            added[label] = added.get(label, 0) + count
    return added


def _confusion(observations: Sequence[Observation]) -> IntArray | None:
    """Add the matrices up, (C, C) int64."""
    sizes = {_size(obs) for obs in observations if obs.labels.get(CONFUSION)}
    size = sizes.pop() if len(sizes) == 1 else 0
    if not 1 < size <= MAX_CLASSES:
        return None
    made = np.zeros(size * size, dtype=np.int64)
    for cell, count in _sum(observations, CONFUSION).items():
        if not 0 <= cell < size * size:
            return None
        made[cell] = count
    return made.reshape(size, size)


def _size(obs: Observation) -> int:
    """Return the number of classes that an observation names; 0 if none, or several."""
    facts = obs.scalars.get("objective", {})
    named = {value for name, value in facts.items() if name.endswith(".classes")}
    return int(named.pop()) if len(named) == 1 and all(0 < n < 1e9 for n in named) else 0  # noqa: PLR2004 - NaN and nonsense


@dataclass(frozen=True)
class Measures:
    """Of one class, shares from 0 to 1; NaN where there is nothing to divide by."""

    label: int
    count: int
    precision: float
    recall: float
    f1: float


def measures(matrix: IntArray) -> list[Measures]:
    """Return precision, recall and F1 of each class of a (C, C) confusion matrix."""
    right, labels, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    return [
        Measures(
            label,
            int(labels[label]),
            _ratio(right[label], predicted[label]),
            _ratio(right[label], labels[label]),
            _ratio(2 * right[label], labels[label] + predicted[label]),
        )
        for label in range(len(matrix))
    ]


def accuracy(classes: Classes) -> float:
    """Return the share of right predictions; NaN if there are none."""
    return _ratio(sum(classes.correct.values()), sum(classes.labels.values()))


def recalls(run: Recorded, mode: Mode, most: int) -> list[Line]:
    """Return the share of rows predicted right over the steps, of the most frequent classes."""
    found = [obs for obs in run.of(mode) if obs.labels.get(LABEL)]
    total = _sum(found, LABEL)
    chosen = sorted(sorted(total, key=lambda label: (-total[label], label))[:most])
    return [
        Line(
            f"class {label}",
            [obs.step for obs in found],
            [
                _ratio(obs.labels.get(CORRECT, {}).get(label, 0), obs.labels[LABEL].get(label, 0))
                for obs in found
            ],
        )
        for label in chosen
    ]


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole > 0 else float("nan")
