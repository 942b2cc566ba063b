"""What the pipeline is told and what it tells its callers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwarden.model import Json, Observation


@dataclass(frozen=True)
class Settings:
    """How patient the pipeline is and how much it does at a time. Times in seconds.

    Attributes:
        defaults: The deployment's defaults for a job's configuration, JSON.
        rules: Judge by these rules, whatever the job says; None to heed the job.
        stop_on: Least severity that asks for a stop: ``error``, ``warning`` or ``never``.
        dry_run: True if no job is ever stopped.
        gap_deadline_s: How long a missing object, or a worker the others wait for, may come late.
        no_data_deadline_s: How long a job may train without a single saved step.
        training_info_deadline_s: How long a run on SageMaker waits for SageMaker's description.
        closing_grace_s: How long after a job's end its last objects may still come.
        abandoned_after_s: How long a job without a SageMaker description may be silent before it
            is closed.
        max_objects: Steps objects read in one call, but always enough for one step of each worker.
        max_requests: Requests of the bucket in one call, whether they find anything or not.
        budget_s: Time one call may take before it leaves the rest to the next.
        sweep_s: The same for a sweep over all jobs.
        share_s: Time a sweep gives one job, at least; more if there are few.
        beside: Called with each observation before it is judged; puts another run's beside it.
    """

    defaults: Mapping[str, Json] = field(default_factory=dict)
    rules: Json = None
    stop_on: str = "error"
    dry_run: bool = False
    gap_deadline_s: float = 300.0
    no_data_deadline_s: float = 900.0
    training_info_deadline_s: float = 120.0
    closing_grace_s: float = 120.0
    abandoned_after_s: float = 6 * 3600.0
    max_objects: int = 32
    max_requests: int = 1_000
    budget_s: float = 20.0
    sweep_s: float = 40.0
    share_s: float = 4.0
    beside: Callable[[Observation], None] | None = None


@dataclass(frozen=True)
class Ingested:
    """What one call brought for one job; counts only what it committed.

    Attributes:
        job: Job name; empty for a key that is none of ours.
        folded: Observations folded.
        findings: Findings recorded.
        rejected: Objects set aside as unacceptable.
        lost: Objects that never came and were skipped.
        crashed: Rules that crashed.
        conflicts: Commits lost to another writer and done again.
        dropped: What the hook said it could not save, by reason.
        closed: True if the call closed the job.
        more: True if a limit was reached: call again.
        reason: Why nothing was done, for a log; empty otherwise.
    """

    job: str
    folded: int = 0
    findings: int = 0
    rejected: int = 0
    lost: int = 0
    crashed: int = 0
    conflicts: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    closed: bool = False
    more: bool = False
    reason: str = ""

    def plus(self, other: Ingested) -> Ingested:
        """Return the sum; ``more`` and ``reason`` are the other's."""
        reasons = {*self.dropped, *other.dropped}
        return Ingested(
            job=self.job,
            folded=self.folded + other.folded,
            findings=self.findings + other.findings,
            rejected=self.rejected + other.rejected,
            lost=self.lost + other.lost,
            crashed=self.crashed + other.crashed,
            conflicts=self.conflicts + other.conflicts,
            dropped={r: self.dropped.get(r, 0) + other.dropped.get(r, 0) for r in sorted(reasons)},
            closed=self.closed or other.closed,
            more=other.more,
            reason=other.reason,
        )


@dataclass(frozen=True)
class Swept:
    """What one sweep brought.

    Attributes:
        jobs: Open jobs looked at.
        folded: Observations folded.
        findings: Findings recorded.
        rejected: As in ``Ingested``, like ``lost``, ``crashed``, ``conflicts`` and ``dropped``.
        lost: See there.
        crashed: See there.
        conflicts: See there.
        closed: Jobs closed.
        failed: Job → why it could not be looked at; the next sweep tries again.
        dropped: See there.
        more: True if time ran out before every job was done.
    """

    jobs: int = 0
    folded: int = 0
    findings: int = 0
    rejected: int = 0
    lost: int = 0
    crashed: int = 0
    conflicts: int = 0
    closed: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    more: bool = False
