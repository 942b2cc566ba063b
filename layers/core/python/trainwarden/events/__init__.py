"""Event envelopes: what leaves through the outbox to the event bus.

An event is ``{"source", "detail-type", "detail": {"metadata", "data"}}``. Its id depends on what
happened and on nothing else, so that consumers can recognise one that is delivered twice.
Schemas: ``docs/events/``. Adding a field keeps version "1"; anything else makes "2".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Final

from trainwarden.config import JobConfig
from trainwarden.events.strict import MAX_EVENT_BYTES, bounded, dumps, number, plain, size
from trainwarden.model import Finding, Json, Severity, Status, Verdict
from trainwarden.policy import CAPTURE, Response, addresses
from trainwarden.store.ports import JobRecord

__all__ = [
    "ACTION_TAKEN",
    "DATA_LOST",
    "DATA_REJECTED",
    "FINDING_RECORDED",
    "JOB_CLOSED",
    "JOB_OPENED",
    "MAX_EVENT_BYTES",
    "SOURCE",
    "VERDICT_CHANGED",
    "Event",
    "action_taken",
    "data_lost",
    "data_rejected",
    "dumps",
    "finding_recorded",
    "job_closed",
    "job_opened",
    "number",
    "plain",
    "size",
    "verdict_changed",
]

SOURCE: Final = "trainwarden"
VERSION: Final = "1"
JOB_OPENED: Final = "Job Opened"
FINDING_RECORDED: Final = "Finding Recorded"
VERDICT_CHANGED: Final = "Verdict Changed"
ACTION_TAKEN: Final = "Action Taken"
DATA_REJECTED: Final = "Data Rejected"
DATA_LOST: Final = "Data Lost"
JOB_CLOSED: Final = "Job Closed"

Event = dict[str, Json]


def job_opened(record: JobRecord, *, time: float) -> Event:
    """Tell that a job is being watched, by which rules, and which settings were not understood.

    ``time``, here and below, is in seconds since the epoch, UTC.
    """
    config, manifest = record.config, record.manifest
    problems = config.get("problems", [])
    data = {
        **_about(record),
        "sagemaker": bool(manifest.get("sagemaker", bool(record.training))),
        "framework": str(manifest.get("framework", "")),
        "rules": [rule["key"] for rule in config.get("rules", [])],
        "stop": bool(config.get("stop", False)),
        "muted": config.get("muted", []),
        "problem_count": len(problems),
        "problems": problems,
    }
    return _event(JOB_OPENED, record, data, time, ())


def finding_recorded(
    record: JobRecord, finding: Finding, *, severity: Severity, time: float
) -> Event:
    """Tell one piece of evidence."""
    data = {
        **_about(record),
        "rule": finding.rule,
        "code": finding.code,
        "severity": severity.value,
        **_evidence(finding),
    }
    what = (finding.rule, finding.step, finding.tensor)
    return _event(FINDING_RECORDED, record, data, time, what)


def verdict_changed(
    record: JobRecord,
    verdict: Verdict,
    *,
    previous: Status | None,
    finding: Finding | None,
    response: Response,
    time: float,
) -> Event:
    """Tell a rule's new standing, with the evidence behind it and what is to be done about it.

    Args:
        record: The job after the change.
        verdict: The rule's standing now.
        previous: Its standing before; None if it had none.
        finding: The finding that changed it; None at the end of a job.
        response: What is to be done about it, from ``policy.respond``.
        time: Seconds since the epoch, UTC.
    """
    data = {
        **_about(record),
        "rule": verdict.rule,
        "code": verdict.code,
        "severity": response.severity.value,
        "status": verdict.status.value,
        "previous": previous.value if previous else "",
        "since_step": verdict.since_step,
        "findings": verdict.findings,
        "evaluated": verdict.evaluated,
        "note": verdict.note,
        "cause": verdict.cause,
        "explains": [
            {"rule": one.rule, "code": one.code, "since_step": one.since_step}
            for one in response.explains
        ],
        **(_evidence(finding) if finding else _no_evidence(verdict)),
        "actions": [
            {"kind": action.kind, "allowed": action.allowed, "reason": action.reason}
            for action in response.actions
        ],
        "stop_requested": response.stops,
        "capture_requested": response.captures,
        "stopping": response.stopping,
        "muted": response.muted,
        "notify": list(response.notify),
    }
    what = (verdict.rule, verdict.status.value, data["step"])
    return _event(VERDICT_CHANGED, record, data, time, what)


def action_taken(
    record: JobRecord, *, kind: str, rule: str, result: Mapping[str, Json], time: float
) -> Event:
    """Tell what came of an action.

    ``result`` holds ``outcome`` (``stopped``, ``asked``, ``refused``, ``dry_run``, ``failed``),
    ``reason`` for a person, and may hold more, which is passed on as ``details``. That detail was
    asked for was told with the verdict: nobody hears of it again unless it failed.
    """
    outcome = str(result.get("outcome", "failed"))
    more = {k: v for k, v in result.items() if k not in {"outcome", "reason"}}
    data = {
        **_about(record),
        "kind": kind,
        "rule": rule,
        "outcome": outcome,
        "reason": str(result.get("reason", "")),
        "details": more,
        "notify": list(addresses(JobConfig.from_json(record.config), rule)),
        "muted": kind == CAPTURE and outcome != "failed",
    }
    return _event(ACTION_TAKEN, record, data, time, (kind, rule, outcome))


def data_rejected(
    record: JobRecord, *, key: str, expected: str, found: str, remedy: str, time: float
) -> Event:
    """Tell that an object was set aside: what was expected, what was found, what to do."""
    data = {**_about(record), "key": key, "expected": expected, "found": found, "remedy": remedy}
    return _event(DATA_REJECTED, record, data, time, (key,))


def data_lost(
    record: JobRecord, *, worker: int, first_seq: int, last_seq: int, reason: str, time: float
) -> Event:
    """Tell that objects ``first_seq`` to ``last_seq`` of a worker never came and were skipped."""
    data = {
        **_about(record),
        "worker": worker,
        "first_seq": first_seq,
        "last_seq": last_seq,
        "objects": last_seq - first_seq + 1,
        "reason": reason,
        "muted": False,
    }
    return _event(DATA_LOST, record, data, time, (worker, first_seq))


def job_closed(record: JobRecord, verdicts: Sequence[Verdict], *, time: float) -> Event:
    """Tell how the job ended and where each rule stands."""
    data = {
        **_about(record),
        "outcome": record.outcome,
        "duration_s": max(0.0, time - record.opened_at),
        "issues": [v.rule for v in verdicts if v.status is Status.ISSUES_FOUND],
        "not_evaluated": [v.rule for v in verdicts if not v.evaluated],
        "verdicts": [_standing(verdict) for verdict in verdicts],
    }
    return _event(JOB_CLOSED, record, data, time, ())


def _about(record: JobRecord) -> dict[str, Json]:
    return {
        "job": record.job,
        "run": str(record.manifest.get("run", "")),
        "instance": str(record.training.get("instance", "")),
        "notify": list(record.config.get("notify", [])),
    }


def _evidence(finding: Finding) -> dict[str, Json]:
    return {
        "step": finding.step,
        "first_step": finding.first_step,
        "tensor": finding.tensor,
        "value": number(float(finding.value)),
        "limit": number(float(finding.limit)),
        "message": finding.message,
        "evidence": finding.evidence,
        "remedies": finding.remedies,
        "confidence": number(float(finding.confidence)),
    }


def _no_evidence(verdict: Verdict) -> dict[str, Json]:
    return {
        "step": verdict.since_step,
        "first_step": verdict.since_step,
        "tensor": "",
        "value": None,
        "limit": None,
        "message": verdict.note,
        "evidence": {},
        "remedies": (),
        "confidence": 1.0,
    }


def _standing(verdict: Verdict) -> dict[str, Json]:
    return {
        "rule": verdict.rule,
        "code": verdict.code,
        "status": verdict.status.value,
        "since_step": verdict.since_step,
        "findings": verdict.findings,
        "evaluated": verdict.evaluated,
        "note": verdict.note,
        "cause": verdict.cause,
    }


def _event(
    detail_type: str,
    record: JobRecord,
    data: Mapping[str, object],
    time: float,
    what: tuple[Json, ...],
) -> Event:
    run = str(record.manifest.get("run", ""))
    attempt = int(record.progress.get("attempt", 1))  # the same run, started anew
    again = [attempt] if attempt > 1 else []
    natural = dumps([record.job, run, detail_type, *(str(part) for part in what), *again])
    metadata: dict[str, Json] = {
        "version": VERSION,
        "event_id": hashlib.sha256(natural.encode("utf-8", "replace")).hexdigest()[:32],
        "job": record.job,
        "time": _iso(time),
    }
    fitted, cut = bounded(data, MAX_EVENT_BYTES - 512)
    if cut:
        metadata["truncated"] = True
    return {
        "source": SOURCE,
        "detail-type": detail_type,
        "detail": {"metadata": metadata, "data": fitted},
    }


def _iso(time: float) -> str:
    moment = datetime.fromtimestamp(round(time, 3), tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
