"""Where predictions lie against labels, in counts and means: no row leaves the machine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

RANKS = 100  # places in the order of a binary model's scores
RANGES = 8  # of labels, alike in rows; a report draws eight curves
BINS = 30  # of residuals, alike in width
Floats = npt.NDArray[np.float32]


def ranked(scores: Floats, labels: Floats) -> dict[int, int]:
    """Count labels along the order of the scores, enough for ROC and precision-recall curves.

    Args:
        scores: (N,), higher for what is rather positive; what is not finite is left out.
        labels: (N,) 0 or 1; nothing else is counted.

    Returns:
        2 * rank + label → rows. Ranks ascend with the scores, at most ``RANKS`` of them with about
        as many rows each; equal scores share one.
    """
    kept = np.isfinite(scores) & ((labels == 0) | (labels == 1))
    if not kept.any():
        return {}
    _, place, sizes = np.unique(scores[kept], return_inverse=True, return_counts=True)
    before = np.cumsum(sizes) - sizes
    _, rank = np.unique(before * RANKS // int(kept.sum()), return_inverse=True)
    keys, counts = np.unique(2 * rank[place] + (labels[kept] == 1), return_counts=True)
    return {int(key): int(count) for key, count in zip(keys, counts, strict=True)}


def residual_facts(labels: Floats, residuals: Floats) -> dict[str, float]:
    """Tell residuals by range of the label, and how they are spread.

    Args:
        labels: (N,) in the label's unit.
        residuals: (N,) label - prediction; what is not finite is left out.

    Returns:
        ``range_I.from``, ``.to``, ``.rows``, ``.mean`` and ``.abs_mean`` (of the residuals) of up
        to ``RANGES`` ranges of labels with about as many rows each; ``bin_I.rows`` of ``BINS`` bins
        of equal width from ``low`` to ``high``, the smallest and the largest residual.
    """
    kept = np.isfinite(labels) & np.isfinite(residuals)
    if labels.ndim != 1 or not kept.any():
        return {}
    wanted, errors = labels[kept].astype(np.float64), residuals[kept].astype(np.float64)
    return {**dict(_by_range(wanted, errors)), **dict(_spread(errors))}


def _by_range(
    labels: npt.NDArray[np.float64], errors: npt.NDArray[np.float64]
) -> Iterator[tuple[str, float]]:
    edges = np.unique(np.quantile(labels, np.linspace(0, 1, RANGES + 1)[1:-1], method="higher"))
    where = np.searchsorted(edges, labels, side="right")
    for number, place in enumerate(np.unique(where)):
        inside = where == place
        told = {
            "from": labels[inside].min(),
            "to": labels[inside].max(),
            "rows": inside.sum(),
            "mean": errors[inside].mean(),
            "abs_mean": np.abs(errors[inside]).mean(),
        }
        for name, value in told.items():
            yield f"range_{number}.{name}", float(value)


def _spread(errors: npt.NDArray[np.float64]) -> Iterator[tuple[str, float]]:
    low, high = float(errors.min()), float(errors.max())
    yield from (("low", low), ("high", high))
    if low < high:
        place = np.minimum((errors - low) / (high - low) * BINS, BINS - 1).astype(np.int64)
        for number, count in enumerate(np.bincount(place, minlength=BINS)):
            yield f"bin_{number}.rows", float(count)
