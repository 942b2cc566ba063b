"""Use cases over ports: ingest, open, close and sweep jobs, authorize and record actions.

``docs/how-it-works.md`` tells why the result is the same whatever is delivered twice, late, out of
order or not at all, and wherever a process dies.
"""

from __future__ import annotations

from trainwarden.pipeline.check import check, jobs_in, judge_all
from trainwarden.pipeline.outcome import verdicts
from trainwarden.pipeline.progress import Progress
from trainwarden.pipeline.replaying import Fired, Replayed, Stop, replay_run, understood
from trainwarden.pipeline.service import Pipeline
from trainwarden.pipeline.values import Ingested, Settings, Swept

__all__ = [
    "Fired",
    "Ingested",
    "Pipeline",
    "Progress",
    "Replayed",
    "Settings",
    "Stop",
    "Swept",
    "check",
    "jobs_in",
    "judge_all",
    "replay_run",
    "understood",
    "verdicts",
]
