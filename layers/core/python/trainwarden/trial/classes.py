"""Counts recorded labels and predictions by class, as the hook does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trainwarden.trial.source import Array

Classes = npt.NDArray[np.int64]
MAX_CLASSES = 1000
_HALF = 0.5


def count_classes(
    labels: Array, predictions: Array | None, *, truncated: bool
) -> tuple[dict[str, dict[int, int]], dict[str, float]]:
    """Return the tables and the facts of collection ``objective``; empty for a regression.

    Args:
        labels: Class numbers of any type, any shape.
        predictions: Class numbers, probabilities of class 1, or scores with the classes last.
        truncated: Cut fractions off instead.
    """
    wanted = _labels(labels, truncated=truncated)
    if wanted is None:
        return {}, {}
    tables = {"label/0": _counts(wanted)}
    given = None if predictions is None else _predicted(predictions, wanted, truncated=truncated)
    if given is None:  # numbers that are no classes: whole labels of a regression
        return ({}, {}) if predictions is not None and not truncated else (tables, {})
    classes = int(max(wanted.max(), given.max())) + 1
    tables["predicted/0"] = _counts(given)
    tables["correct/0"] = _counts(wanted[wanted == given])
    if classes <= MAX_CLASSES:
        tables["confusion/0"] = _counts(wanted * classes + given)
    accuracy = float((wanted == given).mean())
    return tables, {"recorded.classes": float(classes), "recorded.accuracy": accuracy}


def _labels(labels: Array, *, truncated: bool) -> Classes | None:
    if labels.dtype.kind not in "biuf" or not labels.size or not np.isfinite(labels).all():
        return None
    flat = labels.reshape(-1)
    whole = np.trunc(flat).astype(np.int64)
    if (not truncated and (whole != flat).any()) or whole.min() < 0:
        return None
    return whole if np.unique(whole).size <= MAX_CLASSES else None


def _predicted(predictions: Array, wanted: Classes, *, truncated: bool) -> Classes | None:
    if predictions.dtype.kind not in "biuf" or not np.isfinite(predictions).all():
        return None
    if predictions.ndim > 1 and predictions.size > wanted.size:
        found = predictions.reshape(-1, predictions.shape[-1]).argmax(axis=1).astype(np.int64)
    else:
        flat = predictions.reshape(-1)
        found = np.trunc(flat).astype(np.int64)
        if not truncated and (found != flat).any():
            if flat.min() < 0 or flat.max() > 1:
                return None
            found = (flat > _HALF).astype(np.int64)
    return found if found.shape == wanted.shape and found.min() >= 0 else None


def _counts(values: Classes) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(found, counts, strict=True)}
