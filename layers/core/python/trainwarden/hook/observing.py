"""A draft as the observation that is uploaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trainwarden.model import Collection, Observation
from trainwarden.stats.catalog import WIDTH
from trainwarden.wire.names import MAX_COLLECTION_CHARS, writable

if TYPE_CHECKING:
    from trainwarden.hook.draft import Draft
    from trainwarden.hook.rows import Rows


def observation(draft: Draft, rows: Rows, worker: int) -> Observation:
    """Return what was measured, without what rests at this step."""
    layout, named, resting = rows.layout, rows.named, draft.resting
    stats = np.full((len(layout.tensors) if draft.tables else 0, WIDTH), np.nan)
    for places, table in draft.tables:
        kept = places >= 0
        stats[places[kept]] = table[kept]
    scalars, channels, labels = draft.scalars, draft.channels, draft.labels
    if resting is not None:
        idle = {row for row in range(len(stats)) if resting.row(row)}
        stats[list(idle)] = np.nan
        row_of = layout.row_of
        channels = {name: it for name, it in channels.items() if row_of.get(name) not in idle}
        labels = {} if resting.collection(Collection.LABELS.value) else labels
        scalars = {c: found for c, found in scalars.items() if not resting.collection(str(c))}
        told = {f"resting.{name}": 1.0 for name, due in resting.due.items() if not due}
        if not resting.others:
            told |= {
                f"resting.{name}": 1.0
                for name in layout.names_by_collection
                if name not in resting.due
            }
        capture = Collection.CAPTURE.value
        scalars = {**scalars, capture: {**scalars.get(capture, {}), **told}}
    return Observation(
        step=draft.step,
        mode=draft.mode,
        mode_step=draft.mode_step,
        time=draft.time,
        layout=layout,
        stats=stats,
        scalars={
            writable(collection, MAX_COLLECTION_CHARS): named(values)
            for collection, values in scalars.items()
        },
        channels=named(channels),
        labels=named(labels),
        workers=(worker,),
    )
