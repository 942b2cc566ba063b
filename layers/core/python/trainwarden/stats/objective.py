"""What a loss function was given, in numbers: do its inputs and targets suit it?

Shares are of a sample of rows; a row is what the function compares with one target.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainwarden.model import FloatArray, IntArray
from trainwarden.stats.spread import Spread

MAX_CONFUSED = 30  # classes up to which each is counted against each
MAX_DISTINCT = 1000  # classes counted one by one
_TOLERANCE = 1e-3  # of a sum of probabilities, also where they are half precision

Counts = dict[int, int]


class Objective:
    """Facts of one loss function over its calls in one saved step or evaluation pass.

    Args:
        brief: Only what evaluation passes keep.
    """

    def __init__(self, *, brief: bool = False) -> None:
        self._brief = brief
        self._constants: dict[str, float] = {}
        self._inputs, self._targets = Spread(), Spread()
        self._rows = self._sum_to_one = self._log_sum_to_one = 0
        self._elements = self._inside = self._negative = 0
        self._seen = self._impossible = self._ignored = 0
        self._judged = self._right = 0
        self._tables: dict[str, Counts] = {"predicted": {}, "correct": {}, "confusion": {}}

    def set(self, **constants: float) -> None:
        """Set what is the same in each call; the last one counts."""
        self._constants.update(constants)

    def add_inputs(self, rows: FloatArray) -> None:
        """Add sampled inputs (R, C) float64; C is 1 where there are no rows of values."""
        if self._brief:
            return
        bad = self._inputs.nonfinite
        low, high = self._inputs.add(rows)
        bad = self._inputs.nonfinite - bad
        self._elements += rows.size
        with np.errstate(all="ignore"):
            negative = int(np.count_nonzero(rows < 0)) if bad or low < 0 else 0
            above = int(np.count_nonzero(rows > 1)) if bad or high > 1 else 0
            missing = int(np.count_nonzero(np.isnan(rows))) if bad else 0
            self._negative += negative
            self._inside += rows.size - negative - above - missing
            if rows.shape[1] > 1:  # a single value makes no row
                self._add_rows(rows)

    def _add_rows(self, rows: FloatArray) -> None:
        self._rows += len(rows)
        one = np.abs(rows.sum(axis=1) - 1) <= _TOLERANCE
        if one.any():
            self._sum_to_one += int(np.count_nonzero((rows[one] >= 0).all(axis=1)))
        logs = rows.max(axis=1) <= _TOLERANCE
        if logs.any():
            total = np.exp(rows[logs]).sum(axis=1)
            self._log_sum_to_one += int(np.count_nonzero(np.abs(total - 1) <= _TOLERANCE))

    def add_targets(self, targets: FloatArray, *, impossible: int, ignored: int) -> None:
        """Add sampled targets.

        Args:
            targets: Those that are not ignored, any shape, float64.
            impossible: How many of them the function has no meaning for.
            ignored: How many more there are that are ignored.
        """
        self._targets.add(targets)
        self._seen += targets.size + ignored
        self._impossible += impossible
        self._ignored += ignored

    def add_predictions(self, labels: IntArray, predicted: IntArray, classes: int) -> None:
        """Add true and predicted classes, (N,) int64 each, labels out of ``range(classes)``."""
        right = labels == predicted
        self._judged += labels.size
        self._right += int(np.count_nonzero(right))
        _count(self._tables["predicted"], predicted, classes)
        _count(self._tables["correct"], labels[right], classes)
        if classes <= MAX_CONFUSED:
            _count(self._tables["confusion"], labels * classes + predicted, classes * classes)

    @property
    def tables(self) -> Mapping[str, Counts]:
        """By kind: ``predicted``, ``correct``, ``confusion`` (label · C + predicted)."""
        return {kind: counts for kind, counts in self._tables.items() if counts}

    def facts(self) -> dict[str, float]:
        """Return the facts by name; those that cannot be known are left out."""
        found: dict[str, float] = {}
        if self._judged:
            found["accuracy"] = self._right / self._judged
        if self._seen:
            found["impossible_targets"] = self._impossible / self._seen
        if self._targets.n:
            found |= {"target_min": self._targets.low, "target_max": self._targets.high}
        if self._brief:
            return found | {k: v for k, v in self._constants.items() if k == "classes"}
        found |= self._constants
        if self._seen:
            found["ignored"] = self._ignored / self._seen
        if self._targets.n:
            found["target_std"] = self._targets.std
        if self._rows:
            found["rows_sum_to_one"] = self._sum_to_one / self._rows
            found["log_rows_sum_to_one"] = self._log_sum_to_one / self._rows
        if self._elements:
            found["inside_unit"] = self._inside / self._elements
            found["negative"] = self._negative / self._elements
        if self._inputs.n:
            found |= {
                "input_min": self._inputs.low,
                "input_max": self._inputs.high,
                "input_std": self._inputs.std,
            }
        return found


def _count(counts: Counts, values: IntArray, classes: int) -> None:
    """Add how often each value occurs; no more than ``MAX_DISTINCT`` different ones."""
    if classes <= MAX_DISTINCT:
        numbers = np.bincount(values, minlength=1)
        distinct = np.flatnonzero(numbers)
        pairs = zip(distinct.tolist(), numbers[distinct].tolist(), strict=True)
    else:
        distinct, numbers = np.unique(values, return_counts=True)
        pairs = zip(distinct.tolist(), numbers.tolist(), strict=True)
    for value, number in pairs:
        if value in counts or len(counts) < MAX_DISTINCT:
            counts[value] = counts.get(value, 0) + number
