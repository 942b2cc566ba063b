"""Use cases over ports: ingest, open, close and sweep jobs, authorize and record actions.

``docs/how-it-works.md`` tells why the result is the same whatever is delivered twice, late, out of
order or not at all, and wherever a process dies. What only the command line does, ``replaying``, is
not imported here: functions do not carry it.
"""

from __future__ import annotations

from trainwarden.pipeline.check import JOBS, check, holds, jobs_in, judge_all
from trainwarden.pipeline.outcome import verdicts
from trainwarden.pipeline.progress import Progress
from trainwarden.pipeline.service import Pipeline
from trainwarden.pipeline.values import Ingested, Settings, Swept

__all__ = [
    "JOBS",
    "Ingested",
    "Pipeline",
    "Progress",
    "Settings",
    "Swept",
    "check",
    "holds",
    "jobs_in",
    "judge_all",
    "verdicts",
]
