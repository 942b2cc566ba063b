"""What is done about a verdict: the last check before a stop, and the record of what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden import events, policy
from trainwarden.config import JobConfig
from trainwarden.engine import SetSpec
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Json
from trainwarden.pipeline import outcome
from trainwarden.pipeline.control import ask_for_detail
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.values import Settings
from trainwarden.store.ports import EntryKind, JobRecord, Ledger, ObjectStore, TrainingJobs
from trainwarden.wire.control import MAX_NAMES, MAX_WILDCARDS, DetailRequest


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


def capture_more(
    objects: ObjectStore, ledger: Ledger, job: str, rule: str, *, now: float
) -> dict[str, Json]:
    """Ask a job's hook for detail because of a verdict, record that and tell it.

    Once for each rule of a job's run; a second time changes nothing.

    Returns:
        ``outcome``: ``asked``, ``refused`` or ``failed``; ``reason``; if asked what was asked for.

    Raises:
        NotFoundError: nobody has heard of the job.
        RetryableError: throttled, unreachable, or other writers were faster.
    """
    known = _record(ledger, job)
    entries = [*ledger.entries(job, EntryKind.ACTION)]
    attempt = Draft(known, now).progress.attempt
    own = _id(policy.CAPTURE, rule, attempt)
    earlier = [one.body for one in entries if one.id != own]
    asked = sum(one["kind"] == policy.CAPTURE and one["outcome"] == "asked" for one in earlier)
    objection = policy.objection_to_capture(known, rule, asked=asked)
    if objection:
        result: dict[str, Json] = {"outcome": "refused", "reason": objection}
    else:
        request = DetailRequest(f"{rule}-{attempt}", tensors=_suspects(ledger, known, rule))
        result = _ask(objects, job, request)
    record(ledger, job, policy.CAPTURE, rule, result, now=now)
    return result


def _ask(objects: ObjectStore, job: str, request: DetailRequest) -> dict[str, Json]:
    try:
        ask_for_detail(objects, job, request)
    except BadInputError as error:
        return {"outcome": "failed", "reason": str(error)}
    reason = f"the next {request.steps} steps are saved in detail"
    wanted = {"steps": request.steps, "tensors": [*request.tensors]}
    return {"outcome": "asked", "reason": reason, **wanted}


def _suspects(ledger: Ledger, known: JobRecord, rule: str) -> tuple[str, ...]:
    """Return the tensors that a rule, or the rules of a set, found something in."""
    spec = JobConfig.from_json(known.config).asked(rule)
    rules = {rule, *(spec.members if isinstance(spec, SetSpec) else ())}
    found = (entry.body for entry in ledger.entries(known.job, EntryKind.FINDING))
    named = dict.fromkeys(str(one["tensor"]) for one in found if one["rule"] in rules)
    fit = [name for name in named if name and name.count("*") <= MAX_WILDCARDS]
    return tuple(fit[:MAX_NAMES])


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
    id_ = _id(kind, rule, draft.progress.attempt)
    if any(entry.id == id_ for entry in ledger.entries(job, EntryKind.ACTION)):
        return False
    draft.act(id_, {"kind": kind, "rule": rule, **result, "time": now})
    if kind == policy.STOP:
        draft.note(stop=str(result.get("outcome", "failed")))
    draft.tell(events.action_taken(draft.record, kind=kind, rule=rule, result=result, time=now))
    outcome.commit(draft, ledger, "never")
    return True


def _id(kind: str, rule: str, attempt: int) -> str:
    return f"{kind}#{rule}" + (f"#{attempt}" if attempt > 1 else "")


def _record(ledger: Ledger, job: str) -> JobRecord:
    found = ledger.load(job)
    if found is None:
        raise NotFoundError(f"no job {job} in the ledger")
    return found
