"""What rules would have said of a recorded run, and what a stop would have saved.

The run goes through the same pipeline as a live one, over a ledger in memory: nothing is written
where the run lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from trainwarden import config, policy
from trainwarden.errors import KeyGrammarError, MalformedObjectError
from trainwarden.model import Json, Mode, Observation, Severity, Status
from trainwarden.pipeline.check import check
from trainwarden.pipeline.incidents import sentences
from trainwarden.pipeline.outcome import verdicts
from trainwarden.pipeline.progress import Progress
from trainwarden.rules.similar_across_runs import pair
from trainwarden.store.listing import steps_keys
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import CustomRules, Entry, EntryKind, JobRecord, ObjectStore
from trainwarden.trial import open_trial
from trainwarden.trial.observations import observations
from trainwarden.wire import codec, keys
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, Manifest


@dataclass(frozen=True)
class Fired:
    """One rule that found issues.

    Attributes:
        rule: Its key.
        step: Step of its first finding.
        since: First bad step.
        severity: How loudly it would have been announced.
        message: Its first finding, in words.
        cause: Key of the rule whose symptom it is; empty if it stands for itself.
    """

    rule: str
    step: int
    since: int
    severity: str
    message: str
    cause: str = ""


@dataclass(frozen=True)
class Stop:
    """What a stop at the first finding that asks for one would have saved.

    ``steps`` and ``seconds`` are what came after it in the recorded run, ``share`` the part of all
    its steps, from 0 to 1.
    """

    rule: str
    step: int
    steps: int
    share: float
    seconds: float


@dataclass(frozen=True)
class Replayed:
    """A recorded run as these rules see it.

    Attributes:
        job: Its name.
        last_step: Last saved step; -1 if none could be read.
        fired: Rules that found issues, the first one first.
        stop: What would have been stopped; None if nothing asked for it.
        blind: Rules that found nothing to look at.
        problems: What was not understood, or could not be read.
    """

    job: str
    last_step: int = -1
    fired: tuple[Fired, ...] = ()
    stop: Stop | None = None
    blind: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def replay_run(
    objects: ObjectStore,
    job: str,
    rules: Json = None,
    *,
    stop_on: str = "error",
    custom: CustomRules | None = None,
) -> Replayed:
    """Judge one recorded run by ``rules``; the rules it was recorded with if None.

    Args:
        objects: Where it was recorded; only read.
        job: Its name.
        rules: A rules document, as in docs/job-configuration.md.
        stop_on: Least severity that would have stopped it: ``error``, ``warning`` or ``never``.
        custom: Where custom rules run.

    Where a rule compares with another run (``other_trial``), that is the job of this name in the
    same place, or a folder or ``s3://bucket/jobs/job`` that ``open_trial`` opens.

    Raises:
        NotFoundError: no such run, or not the other one.
    """
    ledger = MemoryLedger()
    tables = {name: _table(objects, name) for name in _other_runs(objects, job, rules)}
    beside = partial(pair, tables=tables) if tables else None
    record = check(objects, job, ledger=ledger, rules=rules, beside=beside, custom=custom)
    first: dict[str, Entry] = {}
    for entry in ledger.entries(job, EntryKind.FINDING):
        first.setdefault(str(entry.body["rule"]), entry)
    fired = sorted(_fired(record, first), key=lambda one: (one.step, bool(one.cause), one.rule))
    progress = Progress.from_json(record.progress)
    return Replayed(
        job,
        progress.step,
        tuple(fired),
        _stop(objects, record, fired, progress, stop_on),
        tuple(v.rule for v in verdicts(record) if not v.evaluated),
        tuple(_problems(record, ledger, job)),
    )


def _other_runs(objects: ObjectStore, job: str, rules: Json) -> set[str]:
    """Return the names of the runs that the rules compare with."""
    if rules is None:
        body = objects.get(str(keys.ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
        rules = Manifest.from_bytes(body).rules if body is not None else None
    specs = config.resolve(tags={}, manifest_rules=rules).rules
    found = {str(spec.parameters.get("other_trial", "")) for spec in specs}
    return {name for name in found if name}


def _table(objects: ObjectStore, name: str) -> dict[tuple[int, Mode], Observation]:
    """Read another run, by step and mode; a job beside this one, or one that lies elsewhere."""
    here = False
    with suppress(KeyGrammarError):  # a folder or an address
        key = str(keys.ManifestKey(keys.job_name(name)))
        here = objects.get(key, max_bytes=MAX_MANIFEST_BYTES) is not None
    other = open_trial(objects, name) if here else open_trial(name)
    return {(obs.step, obs.mode): obs for obs in observations(other)}


def _fired(record: JobRecord, first: Mapping[str, Entry]) -> Iterator[Fired]:
    for verdict in verdicts(record):
        if verdict.status not in {Status.ISSUES_FOUND, Status.ERROR}:
            continue
        entry = first.get(verdict.rule)
        body: Mapping[str, Json] = entry.body if entry else {}
        yield Fired(
            verdict.rule,
            int(body.get("step", verdict.since_step)),
            verdict.since_step,
            str(body.get("severity", verdict.severity or Severity.WARNING)),
            str(body.get("message", verdict.note)),
            verdict.cause,
        )


def _stop(
    objects: ObjectStore,
    record: JobRecord,
    fired: list[Fired],
    progress: Progress,
    stop_on: str,
) -> Stop | None:
    """Return the first stop that the rules would have asked for, were the job marked for it."""
    allowed = replace(config.JobConfig.from_json(record.config), stop=True)
    standing = {verdict.rule: verdict for verdict in verdicts(record)}
    for one in fired:
        severity = Severity(one.severity)
        asked = policy.requests(allowed, standing[one.rule], severity, stop_on=stop_on)
        if any(request.kind == "stop" and request.allowed for request in asked):
            steps = max(0, progress.step - one.step)
            seconds = max(0.0, progress.time - time_of(objects, record.job, one.step))
            share = steps / max(1, progress.step + 1)
            return Stop(one.rule, one.step, steps, share, seconds)
    return None


def time_of(objects: ObjectStore, job: str, step: int) -> float:
    """Return when a step was made, by the container's clock; infinity if it cannot be told."""
    return next((obs.time for obs in _recorded(objects, job) if obs.step >= step), float("inf"))


def _recorded(objects: ObjectStore, job: str) -> Iterator[Observation]:
    """Read the first worker's observations; what cannot be read is left out."""
    body = objects.get(str(keys.ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
    if body is None:
        return
    manifest, worker = Manifest.from_bytes(body), -1
    for key in steps_keys(objects, job):
        if worker not in {-1, key.worker}:
            return
        worker = key.worker
        steps = objects.get(str(key), max_bytes=codec.MAX_OBJECT_BYTES)
        with suppress(MalformedObjectError, codec.LayoutUnknownError):  # told as a problem
            found = codec.decode(steps or b"", manifest.layout, key=key)
            if found.run == manifest.run:
                yield from found.observations


def _problems(record: JobRecord, ledger: MemoryLedger, job: str) -> Iterator[str]:
    if record.config:
        yield from (str(one) for one in config.JobConfig.from_json(record.config).problems)
    yield from sentences(ledger.entries(job, EntryKind.INCIDENT))


def understood(rules: Json) -> tuple[str, ...]:
    """Return what of a rules document is not understood, a sentence each; empty if all is."""
    return tuple(str(one) for one in config.resolve(tags={}, manifest_rules=rules).problems)
