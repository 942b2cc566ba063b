"""What the features of a boosted model are worth, from our callback or from recorded tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainwarden.model import Need, Observation
from trainwarden.stats.derived import STATISTICS

IMPORTANCE = Need("feature_importance", "value")


def shares(obs: Observation, kind: str) -> Mapping[str, float]:
    """Return feature → share of all importance of ``kind``; empty if nothing is known.

    Reads the scalars that the callback writes, or tensors as SageMaker Debugger recorded them.
    """
    if IMPORTANCE.collection not in obs.present:
        return {}
    known = obs.memo.get(("importance", kind))
    if known is None:
        known = obs.memo["importance", kind] = _shares(obs, kind)
    found: Mapping[str, float] = known
    return found


def _shares(obs: Observation, kind: str) -> Mapping[str, float]:
    prefix = f"{kind}/"
    told = obs.scalars.get(IMPORTANCE.collection, {})
    found = {
        name.removeprefix(prefix): value
        for name, value in told.items()
        if name.startswith(prefix) and name != prefix
    }
    if not found and IMPORTANCE.collection in obs.present_tensors:
        prefix = f"{IMPORTANCE.collection}/{kind}/"
        rows = [
            r
            for r in obs.captured(IMPORTANCE.collection).tolist()
            if obs.layout.names[r].startswith(prefix)
        ]
        values = STATISTICS["sum"].compute(obs.stats[rows]).tolist() if rows else []
        found = {
            obs.layout.names[row].removeprefix(prefix): value
            for row, value in zip(rows, values, strict=True)
        }
    found = {name: value for name, value in found.items() if math.isfinite(value) and value >= 0}
    whole = sum(found.values())
    # The callback writes shares of all features, of which it keeps the largest.
    scale = whole if whole > 1 or not told else 1.0
    return {name: value / scale for name, value in found.items()} if whole > 0 else {}
