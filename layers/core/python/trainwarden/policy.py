"""Verdict → what is to be done about it, and who may do it. Pure; nothing here touches AWS.

A stop is *requested* by a rule's ``action=stop`` or, where nothing is said, by a verdict severe
enough for the deployment. It is *permitted* only by the job's own tag ``trainwarden:stop=allow``,
read afresh just before the stop; IAM denies it a second time to anything without that tag.
Detail is asked for only by a rule's ``action=capture-more``, so often a job and no more.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainwarden.config import JobConfig
from trainwarden.engine import Engine
from trainwarden.errors import ConfigError
from trainwarden.model import Severity, Status, Verdict
from trainwarden.store.ports import JobRecord, JobStatus, TrainingJob
from trainwarden.wire.identity import NONCE_TAG, NONCE_VARIABLE, identity
from trainwarden.wire.seal import fingerprint, seal_key

STOP_TAG = "trainwarden:stop"
STOP_ON = ("error", "warning", "never")
SAGEMAKER, CONTROL = "sagemaker", "control"
STOP, CAPTURE = "stop", "capture-more"
MAX_CAPTURES = 4  # requests for detail that the rules of a job make
_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_LIMIT = {"error": 2, "warning": 1}


class ActionRequest(NamedTuple):
    """One thing to be done about a verdict.

    ``kind`` is ``notify``, ``stop`` or ``capture-more``; ``reason`` says for a person why it is
    allowed or not.
    """

    kind: str
    rule: str
    allowed: bool
    reason: str


class Response(NamedTuple):
    """What is to be done about a verdict and who hears of it.

    Attributes:
        severity: How loudly.
        actions: What it asks for.
        muted: True if nobody is to hear of it.
        notify: Addresses that hear of it; empty means everybody.
        explains: Verdicts that stand and are symptoms of this one.
        stopping: The rule whose verdict has already asked for a stop that is permitted.
    """

    severity: Severity
    actions: tuple[ActionRequest, ...] = ()
    muted: bool = False
    notify: tuple[str, ...] = ()
    explains: tuple[Verdict, ...] = ()
    stopping: str = ""

    @property
    def stops(self) -> bool:
        """True if a stop is asked for and permitted, so far as the configuration says."""
        return _does(self.actions, STOP)

    @property
    def captures(self) -> bool:
        """True if detail is asked for."""
        return _does(self.actions, CAPTURE)


@dataclass(frozen=True)
class Decision:
    """Whether a job may be stopped now, and how.

    Attributes:
        allowed: It may.
        dry_run: Tell it and do nothing.
        reason: One sentence for a person.
        how: ``sagemaker`` by StopTrainingJob, ``control`` by asking the loop through its control
            document.
    """

    allowed: bool
    dry_run: bool
    reason: str
    how: str = SAGEMAKER


def requests(
    config: JobConfig, verdict: Verdict, severity: Severity, *, stop_on: str = "error"
) -> tuple[ActionRequest, ...]:
    """Return what a verdict asks for: nothing unless it found issues or its rule crashed.

    Args:
        config: Of the job.
        verdict: As it stands now.
        severity: Of the finding behind it, else of the rule.
        stop_on: Least severity at which a rule without actions of its own asks for a stop:
            ``error``, ``warning`` or ``never``.
    """
    if verdict.status not in {Status.ISSUES_FOUND, Status.ERROR}:
        return ()
    muted = config.is_muted(verdict.rule)
    told = ActionRequest(
        "notify", verdict.rule, not muted, "muted by trainwarden:mute" if muted else "not muted"
    )
    asked = [told]
    if why := _wants_stop(config, verdict, severity, stop_on):
        unmarked = f"the job has no tag {STOP_TAG}=allow (outside SageMaker: watch(stop='allow'))"
        reason = f"{why}; the job allows it" if config.stop else unmarked
        asked.append(ActionRequest(STOP, verdict.rule, config.stop, reason))
    if _wants_detail(config, verdict):
        asked.append(ActionRequest(CAPTURE, verdict.rule, True, f"the rule has action={CAPTURE}"))
    if muted:
        asked[1:] = [one._replace(allowed=False, reason="muted") for one in asked[1:]]
    return tuple(asked)


def _does(actions: Sequence[ActionRequest], kind: str) -> bool:
    return any(action.kind == kind and action.allowed for action in actions)


def respond(
    config: JobConfig,
    verdict: Verdict,
    severity: Severity,
    *,
    stop_on: str = "error",
    cause: Verdict | None = None,
) -> Response:
    """Return ``requests`` with who hears of it, as ``events.verdict_changed`` takes it.

    What the message about its ``cause`` tells is not told a second time, and a stop that the cause
    asks for is not asked for again. A member of a set is told by its set.
    """
    asked = requests(config, verdict, severity, stop_on=stop_on)
    if verdict.status is Status.ISSUES_FOUND:
        asked = _without_echo(config, asked, stop_on, cause)
    return Response(severity, asked, config.is_muted(verdict.rule), addresses(config, verdict.rule))


def _without_echo(
    config: JobConfig, asked: tuple[ActionRequest, ...], stop_on: str, cause: Verdict | None
) -> tuple[ActionRequest, ...]:
    """Withdraw what the verdict of the cause, or of the set, asks for already."""
    done = []
    for action in asked:
        reason = ""
        if action.kind == "notify":
            reason = _told_elsewhere(config, action.rule, cause)
        elif cause is not None and _asks(config, cause, action.kind, stop_on):
            reason = f"{cause.rule} asks for it already"
        withdrawn = action.allowed and reason
        done.append(action._replace(allowed=False, reason=reason) if withdrawn else action)
    return tuple(done)


def _told_elsewhere(config: JobConfig, rule: str, cause: Verdict | None) -> str:
    """Return why nobody is told of a rule's verdict by itself, empty if somebody is."""
    if cause is not None and not config.is_muted(cause.rule):
        heard, wanted = addresses(config, cause.rule), addresses(config, rule)
        if not heard or (wanted and {*wanted} <= {*heard}):  # no address at all is everybody
            return f"told as part of {cause.rule}"
    own = config.set_of(rule)
    return f"a member of {own.key}, which tells" if own is not None else ""


def _asks(config: JobConfig, verdict: Verdict, kind: str, stop_on: str) -> bool:
    severity = verdict.severity or Severity.WARNING
    return _does(requests(config, verdict, severity, stop_on=stop_on), kind)


def stopping(config: JobConfig, verdicts: Sequence[Verdict], *, stop_on: str) -> str:
    """Return the rule whose verdict asked for a stop that is permitted, empty if none did."""
    ill = [v for v in verdicts if v.status is Status.ISSUES_FOUND]
    return next((v.rule for v in ill if _asks(config, v, STOP, stop_on)), "")


def addresses(config: JobConfig, rule: str) -> tuple[str, ...]:
    """Return who is told of a rule: the job's addresses and the rule's own; empty means all."""
    spec = config.asked(rule)
    own = [action.partition(":")[2] for action in (spec.actions if spec else ()) if ":" in action]
    return tuple(dict.fromkeys((*config.notify, *own)))


def _wants_stop(config: JobConfig, verdict: Verdict, severity: Severity, stop_on: str) -> str:
    """Return why a stop is asked for, empty if it is not."""
    if verdict.status is not Status.ISSUES_FOUND:
        return ""
    spec = config.asked(verdict.rule)
    if spec is None:  # verdicts that are no rule's, such as NoData: there is nothing to save
        return ""
    if spec.actions:
        return "the rule has action=stop" if STOP in spec.actions else ""
    if config.set_of(verdict.rule) is not None:
        return ""  # its set decides
    if _RANK[severity] >= _LIMIT.get(stop_on, len(_RANK)):
        return f"severity {severity}"
    return ""


def _wants_detail(config: JobConfig, verdict: Verdict) -> bool:
    spec = config.asked(verdict.rule)
    issues = verdict.status is Status.ISSUES_FOUND
    return issues and spec is not None and CAPTURE in spec.actions


def objection_to_capture(record: JobRecord, rule: str, *, asked: int) -> str:
    """Return why a job is not to be asked for detail, empty if it may be.

    Args:
        record: The job in the ledger.
        rule: Key of the rule whose verdict asks for it.
        asked: How often the job's other rules have asked already.
    """
    return next(_objections_to_capture(record, rule, asked), "")


def _objections_to_capture(record: JobRecord, rule: str, asked: int) -> Iterator[str]:
    if record.status is JobStatus.CLOSED:
        yield "the job is already over"
    if asked >= MAX_CAPTURES:
        yield f"{asked} rules of the job have asked for detail already"
    yield from _verdict_objections(record, rule, CAPTURE)


def authorize_stop(
    record: JobRecord, training: TrainingJob | None, rule: str, *, dry_run: bool
) -> Decision:
    """Decide on a stop from a job's record and SageMaker's fresh description of it.

    Args:
        record: The job in the ledger.
        training: SageMaker's description read just now; None if there is no such job.
        rule: Key of the rule whose verdict asks for the stop.
        dry_run: Decide and tell, but do not stop.
    """
    elsewhere = record.manifest.get("sagemaker") is False
    how = CONTROL if elsewhere else SAGEMAKER
    judge = _objections_elsewhere if elsewhere else _objections
    objection = next(judge(record, training, rule), "")
    if objection:
        return Decision(allowed=False, dry_run=dry_run, reason=objection, how=how)
    marked = "its script says stop='allow'" if elsewhere else f"the job carries {STOP_TAG}=allow"
    return Decision(True, dry_run, f"{rule} found issues and {marked}", how)


def _objections_elsewhere(
    record: JobRecord, training: TrainingJob | None, rule: str
) -> Iterator[str]:
    """Yield why a job outside SageMaker must not be asked to stop, the plainest reason first."""
    if training is not None:
        yield f"{record.job} is a SageMaker job, and its data says that it is none"
    if record.status is JobStatus.CLOSED:
        yield "the job is already over"
    if record.manifest.get("stop") is not True:
        yield "its script does not say watch(stop='allow')"
    yield from _verdict_objections(record, rule)


def _objections(record: JobRecord, training: TrainingJob | None, rule: str) -> Iterator[str]:
    """Yield why the job must not be stopped, the plainest reason first."""
    if training is None:
        yield f"SageMaker knows no training job {record.job}"
        return
    if training.name != record.job:
        yield f"SageMaker described {training.name}, not {record.job}"
    if training.status != "InProgress":
        yield f"the job is already {training.status or 'over'}"
    if training.tags.get(STOP_TAG) != "allow":
        yield f"the job has no tag {STOP_TAG}=allow"
    told = str(record.manifest.get("identity", ""))
    known = identity(training.arn, training.hyperparameters, training.tags.get(NONCE_TAG, ""))
    if not hmac.compare_digest(told.encode(), known.encode()):
        yield (
            "the data below the job's prefix was not written by this training job "
            "(its manifest has another identity)"
        )
    sealed = str(record.progress.get("sealed", ""))
    if not hmac.compare_digest(sealed.encode(), fingerprint(run_key(training)).encode()):
        yield (
            "its data is not sealed by this run, so somebody else may have written it; let the "
            "training script use a trainwarden that is as new as the deployment, and set the tag "
            f"{NONCE_TAG} and {NONCE_VARIABLE} alike"
        )
    yield from _verdict_objections(record, rule)


def run_key(training: TrainingJob) -> bytes:
    """Return the key of the seals of the run that SageMaker describes."""
    nonce = training.tags.get(NONCE_TAG, "")
    return seal_key(training.arn, training.hyperparameters, nonce)


def _verdict_objections(record: JobRecord, rule: str, kind: str = STOP) -> Iterator[str]:
    config = JobConfig.from_json(record.config)
    spec = config.asked(rule)
    if spec is None:
        yield f"no rule {rule} runs for this job"
        return
    if kind not in spec.actions and (spec.actions or kind != STOP):
        yield f"the rule {rule} does not ask for {'a stop' if kind == STOP else 'detail'}"
    if config.is_muted(rule):
        yield f"the rule {rule} is muted"
    try:
        verdicts = Engine(config.rules, config.sets).verdicts(record.rules) if record.rules else ()
    except ConfigError as error:
        yield f"the rules of this job cannot be built any more: {error}"
        return
    status = next((v.status for v in verdicts if v.rule == rule), Status.IN_PROGRESS)
    if status is not Status.ISSUES_FOUND:
        yield f"the verdict of {rule} is {status}, not {Status.ISSUES_FOUND}"
