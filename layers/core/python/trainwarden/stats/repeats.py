"""Samples that come again: do they bring the label they had?

Memory is bounded: so many samples are remembered, the first ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

MAX_REMEMBERED = 8192  # samples
MAX_LABELS = 1000  # different ones


class Repeats:
    """Labels by sample, over the batches added so far."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._labels: Counter[int] = Counter()
        self._again = self._other = 0

    def add(self, samples: Sequence[int], labels: Sequence[int]) -> dict[str, float]:
        """Add a batch and return the facts; none for labels that number the rows of a batch.

        ``repeated``: samples that were seen before, in all. ``relabelled``: share of these whose
        label is not the one they had. ``by_chance``: the share to expect if labels do not belong to
        samples, which is that of all pairs of labels that differ.

        Args:
            samples: A fingerprint of each; one that occurs twice in a batch says too little.
            labels: Of each, as many.
        """
        if _numbers_rows(labels):
            return {}
        once = Counter(samples)
        for sample, label in zip(samples, labels, strict=True):
            if label in self._labels or len(self._labels) < MAX_LABELS:
                self._labels[label] += 1
            if once[sample] == 1:
                self._see(sample, label)
        seen = self._labels.total()
        alike = sum(n * (n - 1) for n in self._labels.values())
        found = {"repeated": float(self._again)}
        if self._again:
            found["relabelled"] = self._other / self._again
            found["by_chance"] = 1.0 - alike / (seen * (seen - 1))
        return found

    def _see(self, sample: int, label: int) -> None:
        before = self._last.get(sample)
        if before is not None:
            self._again += 1
            self._other += before != label
        if before is not None or len(self._last) < MAX_REMEMBERED:
            self._last[sample] = label


def _numbers_rows(labels: Sequence[int]) -> bool:
    """Say whether labels are positions in the batch, as contrastive losses have them."""
    n, different = len(labels), set(labels)
    if n < 2 or len(different) < n:  # noqa: PLR2004 - a single one says nothing
        return False
    return max(different) - min(different) == n - 1 or list(labels) == sorted(different)
