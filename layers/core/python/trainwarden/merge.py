"""Many workers → one observation.

What two ranks report about one tensor means one of two things. Replicas (weights and synchronised
gradients under data parallelism) are the same numbers twice: taken once. Everything else
(activations and losses of different batches, shards of one weight, gradients before they are
synchronised) is different data: merged, so that a NaN on one rank is never lost.

Rows of parts of a tensor stand for the tensor only together. Where some are missing, because a
process saved other steps or ended, the row counts as not captured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trainwarden.model import Channels, Collection, FloatArray, IntArray, Layout, Observation
from trainwarden.stats.catalog import INDEX, WIDTH, Flag
from trainwarden.stats.merging import merge_rows
from trainwarden.stats.reductions import channel_columns

# Their manifest shape lacks the batch dimension, so a full row never proves a replica.
_PER_BATCH = frozenset(
    {Collection.ACTIVATIONS, Collection.INPUTS, Collection.OUTPUTS, Collection.LABELS}
)
_N, _FLAGS = INDEX["n"], INDEX["flags"]


def merge(observations: Sequence[Observation], *, partial: bool = False) -> Observation:
    """Merge what several workers saved for one step and mode.

    The result does not depend on the order of ``observations``: they are merged by rank.

    Args:
        observations: At least one, all of one step and mode, their workers disjoint.
        partial: True if a worker that should have sent this step did not.
    """
    ordered = sorted(observations, key=lambda obs: obs.workers)
    first = ordered[0]
    if len(ordered) == 1:
        stats = _whole(first.stats, first.layout)
        if stats is first.stats and (first.partial or not partial):
            return first
        return replace(first, stats=stats, partial=partial or first.partial)
    layout = max((obs.layout for obs in ordered), key=lambda known: len(known.tensors))
    channels = _merged_channels([obs.channels for obs in ordered])
    return Observation(
        step=first.step,
        mode=first.mode,
        mode_step=first.mode_step,
        time=max(obs.time for obs in ordered),
        layout=layout,
        stats=_whole(_merged_stats([obs.stats for obs in ordered], layout, channels), layout),
        scalars=_merged_scalars([obs.scalars for obs in ordered]),
        channels=channels,
        labels=_merged_labels([obs.labels for obs in ordered]),
        workers=tuple(sorted({worker for obs in ordered for worker in obs.workers})),
        partial=partial or any(obs.partial for obs in ordered),
    )


def _merged_stats(
    tables: Sequence[FloatArray], layout: Layout, channels: Mapping[str, Channels]
) -> FloatArray:
    rows = max(table.shape[0] for table in tables)
    merged = _padded(tables[0], rows).copy()
    for table in tables[1:]:
        other = _padded(table, rows)
        replicas = _replicas(merged, other, layout)
        merged = np.where(replicas[:, None], merged, merge_rows(merged, other))
    for name, activity in channels.items():
        row = layout.row_of.get(name, rows)
        if row < rows:  # "dead" means dead on every rank: only the counts can tell
            channel_columns(merged[row], activity)
    return merged


def _whole(stats: FloatArray, layout: Layout) -> FloatArray:
    """Return a table (R, 32) without rows of parts: they are whole by now, or not captured."""
    flags = np.nan_to_num(stats[:, _FLAGS]).astype(np.int64)
    parts = np.flatnonzero(flags & Flag.PART)
    if not parts.size:
        return stats
    stats = stats.copy()
    stats[parts, _FLAGS] = flags[parts] & ~Flag.PART
    for row in parts.tolist():
        if stats[row, _N] != math.prod(layout.tensors[row].shape):
            stats[row] = np.nan
    return stats


def _padded(table: FloatArray, rows: int) -> FloatArray:
    if table.shape[0] == rows:
        return table
    return np.vstack([table, np.full((rows - table.shape[0], WIDTH), np.nan)])


def _replicas(a: FloatArray, b: FloatArray, layout: Layout) -> npt.NDArray[np.bool_]:
    """Find rows that hold the same whole tensor twice, (R,) bool.

    Equal alone does not do: two shards of zeros are equal, too. Compared bit by bit, since a
    fingerprint column may spell any NaN.
    """
    bits_a = np.ascontiguousarray(a).view(np.uint64)
    bits_b = np.ascontiguousarray(b).view(np.uint64)
    same: npt.NDArray[np.bool_] = (bits_a == bits_b).all(axis=1)
    for row in np.flatnonzero(same).tolist():
        tensor = layout.tensors[row]
        same[row] = tensor.collection not in _PER_BATCH and a[row, _N] == math.prod(tensor.shape)
    return same


def _merged_scalars(
    all_scalars: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, float]]:
    """Optimizer scalars by the largest (a skipped step anywhere counts), others by the mean."""
    values: dict[str, dict[str, list[float]]] = {}
    for scalars in all_scalars:
        for collection, named in scalars.items():
            for name, value in named.items():
                values.setdefault(collection, {}).setdefault(name, []).append(value)
    return {
        collection: {
            name: _one(found, largest=collection == Collection.OPTIMIZER)
            for name, found in named.items()
        }
        for collection, named in values.items()
    }


def _one(values: Sequence[float], *, largest: bool) -> float:
    if any(math.isnan(value) for value in values):
        return math.nan
    if largest or len(set(values)) == 1:  # the mean of equal numbers need not be that number
        return max(values)
    if math.inf in values and -math.inf in values:
        return math.nan
    return sum(value / len(values) for value in values)  # the sum itself could overflow


def _merged_channels(all_channels: Sequence[Mapping[str, Channels]]) -> dict[str, Channels]:
    merged: dict[str, Channels] = {}
    for channels in all_channels:
        for name, new in channels.items():
            old = merged.get(name)
            if old is None:
                merged[name] = new
            elif old.active.shape == new.active.shape:
                active: IntArray = old.active + new.active
                merged[name] = Channels(active, old.seen + new.seen)
    return merged


def _merged_labels(
    all_labels: Sequence[Mapping[str, Mapping[int, int]]],
) -> dict[str, dict[int, int]]:
    merged: dict[str, dict[int, int]] = {}
    for labels in all_labels:
        for name, counts in labels.items():
            into = merged.setdefault(name, {})
            for label, count in counts.items():
                into[label] = into.get(label, 0) + count
    return merged
