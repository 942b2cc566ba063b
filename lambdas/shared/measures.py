"""What the pipeline did → metrics."""

from __future__ import annotations

from lambdas.shared import obs
from trainwarden.pipeline import Ingested, Swept


def measure(found: Ingested | Swept) -> None:
    """Count what a call brought; zeros cost nothing and are left out."""
    obs.count(
        {
            obs.OBJECTS_FOLDED: found.folded,
            obs.FINDINGS_RECORDED: found.findings,
            obs.RULE_CRASHES: found.crashed,
            obs.GAPS_SKIPPED: found.lost,
            obs.UPLOADS_DROPPED: sum(found.dropped.values()),
            obs.DATA_REJECTED: found.rejected,
            obs.CONFLICTS: found.conflicts,
        }
    )
