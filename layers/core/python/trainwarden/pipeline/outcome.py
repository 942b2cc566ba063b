"""What a fold brought → entries and events of the next commit; verdicts of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from trainwarden import events, policy
from trainwarden.config import JobConfig
from trainwarden.custom.asking import Asking
from trainwarden.engine import Engine, Fold, RuleSpec, foreign
from trainwarden.errors import ConfigError, TooLargeError
from trainwarden.model import Finding, Json, Severity, Status, Verdict
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.progress import Progress
from trainwarden.rules import build, registry
from trainwarden.store.ports import JobRecord, JobStatus, Ledger

NO_DATA = "NoData"
NO_DATA_CODE = "SYS002"
GONE = "the deployment no longer had this rule when the job ended"


@dataclass(frozen=True)
class Judge:
    """How one job is judged."""

    config: JobConfig
    engine: Engine
    stop_on: str


def judge_of(config: Mapping[str, Json], stop_on: str) -> Judge:
    """Return the judge of a resolved configuration, from a cache where possible."""
    return _judge(events.dumps(events.plain(config)), stop_on, id(registry()))


@lru_cache(maxsize=64)
def _judge(text: str, stop_on: str, registered: int) -> Judge:
    import json

    del registered  # the rules that there are: some may have been added since
    config = JobConfig.from_json(json.loads(text))
    specs = [spec for spec in config.rules if _builds(spec)]
    known = {spec.key for spec in specs}
    sets = [one for one in config.sets if known.issuperset(one.members)]
    return Judge(config, Engine(specs, sets), stop_on)


def _builds(spec: RuleSpec) -> bool:
    """False for a rule that a later deployment no longer knows; the others go on."""
    try:
        build(spec.name, spec.parameters, profile=spec.profile)
    except ConfigError:
        return False
    return True


def verdicts(record: JobRecord) -> tuple[Verdict, ...]:
    """Return where each rule of a job stands, ``NoData`` included where it was raised."""
    found: tuple[Verdict, ...] = ()
    if record.config and record.rules:
        judge = judge_of(record.config, "never")
        found = (*judge.engine.verdicts(record.rules), *_foreign(record, judge))
    note = Progress.from_json(record.progress).no_data
    return (*found, _no_data(note)) if note else found


def _foreign(record: JobRecord, judge: Judge) -> Iterator[Verdict]:
    """Yield where rules stand that ran in the deployment and that this process does not have."""
    for spec in judge.config.rules:
        entry = record.rules["rules"].get(spec.key)
        if spec.key in judge.engine.rules or entry is None:
            continue
        verdict = foreign(spec.key, entry)
        if record.status is JobStatus.CLOSED and verdict.status is Status.IN_PROGRESS:
            verdict = replace(verdict, status=Status.STOPPED, note=GONE)
        yield verdict


def announce(draft: Draft, judge: Judge, fold: Fold, *, salt: str) -> None:
    """Put a fold's state, findings and changed verdicts into the draft.

    Args:
        draft: Its record still has the state before the fold.
        judge: The job's.
        fold: From the job's engine.
        salt: Tells apart equal findings of different folds.
    """
    before = draft.record.rules
    draft.change(rules=fold.state)
    for finding in fold.findings:
        draft.find(finding, salt=salt)
    if not fold.changed:
        return
    earlier = judge.engine.verdicts(before) if before else ()
    previous = {v.rule: v.status for v in earlier}
    standing = judge.engine.verdicts(fold.state)
    stopping = _stopping(draft, judge, earlier)
    for verdict in fold.changed:
        evidence = next((f for f in fold.findings if f.rule == verdict.rule), None)
        _tell(
            draft,
            judge,
            verdict,
            _Context(previous.get(verdict.rule), evidence, standing, stopping),
        )
        stopping = stopping or _stopping(draft, judge, (verdict,))


def commit(draft: Draft, ledger: Ledger, stop_on: str) -> JobRecord:
    """Commit a draft; a rule whose state does not fit goes, so that the job never stands still.

    Raises:
        ConflictError: another writer committed first; nothing was written.
        RetryableError: throttled or unreachable.
        BadInputError: refused for ever, whatever the rules' states.
    """
    if draft.judged:
        judge = judge_of(draft.record.config, stop_on)
        fold = judge.engine.bounded(draft.record.rules, step=draft.progress.step)
        if fold.changed:
            announce(draft, judge, fold, salt=f"state {draft.record.version}")
    while True:
        try:
            return draft.commit(ledger)
        except TooLargeError as error:  # noqa: PERF203 - at most once for each rule
            _give_up_largest(draft, stop_on, error)


def _give_up_largest(draft: Draft, stop_on: str, error: TooLargeError) -> None:
    record = draft.record
    judge = judge_of(record.config, stop_on) if record.config and record.rules else None
    rule = judge.engine.largest(record.rules) if judge else ""
    if judge is None or not rule:
        raise error
    what = f"its state is the largest, and all rules' together grew beyond one record ({error})"
    fold = judge.engine.give_up(record.rules, {rule: what[:500]}, step=draft.progress.step)
    announce(draft, judge, fold, salt=f"size {record.version}")


def announce_no_data(draft: Draft, judge: Judge, note: str) -> None:
    """Raise the verdict that a job has no data."""
    draft.note(no_data=note)
    _tell(draft, judge, _no_data(note), _Context())


def withdraw_no_data(draft: Draft, judge: Judge) -> None:
    """Take the verdict back: data has come."""
    draft.note(no_data="")
    healed = Verdict(NO_DATA, NO_DATA_CODE, Status.NO_ISSUES_FOUND, inspected=1, note="data came")
    _tell(draft, judge, healed, _Context(Status.ISSUES_FOUND))


def close(draft: Draft, judge: Judge, outcome: str, asking: Asking) -> None:
    """Settle every verdict and close the job."""
    state = draft.record.rules or judge.engine.start()
    stopped = outcome.lower() == "stopped"
    draft.change(status=JobStatus.CLOSED, outcome=outcome, rules=state, gap_since=0.0)
    answers = asking.finish(judge.engine, state)
    fold = judge.engine.finish(state, stopped=stopped, answers=answers)
    announce(draft, judge, fold, salt="finish")
    draft.note(waiting={})
    standing = (*judge.engine.verdicts(draft.record.rules), *_raised(draft.progress))
    draft.tell(events.job_closed(draft.record, standing, time=draft.now))


def _raised(progress: Progress) -> Sequence[Verdict]:
    return (_no_data(progress.no_data),) if progress.no_data else ()


def _no_data(note: str) -> Verdict:
    return Verdict(NO_DATA, NO_DATA_CODE, Status.ISSUES_FOUND, since_step=0, findings=1, note=note)


@dataclass(frozen=True)
class _Context:
    """What is told beside a verdict: how it stood, its evidence, the others, a stop under way."""

    previous: Status | None = None
    finding: Finding | None = None
    standing: Sequence[Verdict] = ()
    stopping: str = ""


def _tell(draft: Draft, judge: Judge, verdict: Verdict, context: _Context) -> None:
    finding = context.finding
    severity = verdict.severity or Severity.WARNING
    if finding is not None and finding.severity is not None:
        severity = finding.severity
    cause = next((v for v in context.standing if v.rule == verdict.cause), None)
    response = policy.respond(judge.config, verdict, severity, stop_on=judge.stop_on, cause=cause)
    draft.tell(
        events.verdict_changed(
            draft.record,
            verdict,
            previous=context.previous,
            finding=finding,
            response=response._replace(
                explains=tuple(v for v in context.standing if v.cause == verdict.rule),
                stopping=context.stopping,
            ),
            time=draft.now,
        )
    )


def _stopping(draft: Draft, judge: Judge, verdicts: Sequence[Verdict]) -> str:
    """Return the rule that asked for a stop that has not come to nothing."""
    if draft.progress.stop not in {"", "stopped", "asked"}:
        return ""
    return policy.stopping(judge.config, verdicts, stop_on=judge.stop_on)
