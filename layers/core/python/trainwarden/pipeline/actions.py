"""What is done about a verdict: the last check before a stop, and the record of what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden import events, policy
from trainwarden.errors import NotFoundError
from trainwarden.model import Json
from trainwarden.pipeline import outcome
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.values import Settings
from trainwarden.store.ports import EntryKind, JobRecord, Ledger, TrainingJobs


def authorize_stop(
    ledger: Ledger, training: TrainingJobs | None, settings: Settings, job: str, rule: str
) -> policy.Decision:
    """Decide from the job's record and SageMaker's description read now.

    Raises:
        NotFoundError: nobody has heard of the job.
        RetryableError: throttled or unreachable.
    """
    record = _record(ledger, job)
    described = training.describe(job) if training else None
    return policy.authorize_stop(record, described, rule, dry_run=settings.dry_run)


def record(
    ledger: Ledger, job: str, kind: str, rule: str, result: Mapping[str, Json], *, now: float
) -> bool:
    """Record an action and tell it, once for each kind and rule of a job's run.

    Raises:
        NotFoundError: nobody has heard of the job.
        ConflictError: another writer committed first; nothing was written.
        RetryableError: throttled or unreachable.
    """
    draft = Draft(_record(ledger, job), now)
    attempt = draft.progress.attempt
    id_ = f"{kind}#{rule}" + (f"#{attempt}" if attempt > 1 else "")
    if any(entry.id == id_ for entry in ledger.entries(job, EntryKind.ACTION)):
        return False
    draft.act(id_, {"kind": kind, "rule": rule, **result, "time": now})
    if kind == "stop":
        draft.note(stop=str(result.get("outcome", "failed")))
    draft.tell(events.action_taken(draft.record, kind=kind, rule=rule, result=result, time=now))
    outcome.commit(draft, ledger, "never")
    return True


def _record(ledger: Ledger, job: str) -> JobRecord:
    found = ledger.load(job)
    if found is None:
        raise NotFoundError(f"no job {job} in the ledger")
    return found
