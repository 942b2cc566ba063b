"""Recorded runs in a folder, judged by the same pipeline without any cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from trainwarden.errors import KeyGrammarError, NotFoundError
from trainwarden.model import Json, Observation
from trainwarden.pipeline.service import Pipeline
from trainwarden.pipeline.values import Settings
from trainwarden.store.listing import folders
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import CustomRules, JobRecord, JobStatus, Ledger, ObjectStore
from trainwarden.wire import keys

JOBS = "jobs/"
_LOCAL = Settings(
    training_info_deadline_s=0.0, budget_s=3600.0, max_objects=10**6, max_requests=10**9
)


def jobs_in(objects: ObjectStore) -> tuple[str, ...]:
    """Return the names of the jobs that have an object, ascending."""
    found = []
    for name in folders(objects, JOBS):
        with suppress(KeyGrammarError):  # somebody's own files
            found.append(keys.job_name(name))
    return tuple(found)


def holds(objects: ObjectStore, job: str) -> bool:
    """Say whether there is an object of this job."""
    try:
        return next(iter(objects.keys(f"{JOBS}{keys.job_name(job)}/")), None) is not None
    except KeyGrammarError:
        return False


def check(  # noqa: PLR0913 - named options, each of them optional
    objects: ObjectStore,
    job: str | None = None,
    *,
    ledger: Ledger | None = None,
    defaults: Mapping[str, Json] | None = None,
    rules: Json = None,
    beside: Callable[[Observation], None] | None = None,
    custom: CustomRules | None = None,
    now: Callable[[], float] = time.time,
) -> JobRecord:
    """Judge a recorded run to its end and close it.

    Args:
        objects: Where the run was recorded.
        job: Which; None if there is only one.
        ledger: Takes findings and incidents; an empty one in memory if None.
        defaults: Configuration used where the run's own says nothing.
        rules: Judge by these, whatever the run says.
        beside: Puts another run's observation beside each one.
        custom: Where custom rules run.
        now: Seconds since the epoch, UTC.

    Raises:
        NotFoundError: no run, not that run, or several and none was named.
    """
    ledger = MemoryLedger() if ledger is None else ledger
    name = job if job and holds(objects, job) else _chosen(jobs_in(objects), job)
    settings = replace(_LOCAL, defaults=defaults or {}, rules=rules, beside=beside)
    pipeline = Pipeline(objects, ledger, None, settings, now, custom)
    brought = pipeline.ingest(name)
    while brought.more:
        brought = pipeline.ingest(name)
    record = ledger.load(name)
    if record is None or record.status is not JobStatus.CLOSED:
        pipeline.end(name, "no end object")
        record = ledger.load(name)
    if record is None:
        raise NotFoundError(f"the record of {name} vanished from the ledger")
    return record


def judge_all(
    objects: ObjectStore,
    ledger: Ledger,
    *,
    defaults: Mapping[str, Json] | None = None,
    now: Callable[[], float] = time.time,
) -> tuple[str, ...]:
    """Judge what every recorded run has so far, and return their names; runs may go on."""
    pipeline = Pipeline(objects, ledger, None, replace(_LOCAL, defaults=defaults or {}), now)
    names = jobs_in(objects)
    for name in names:
        hints = _beyond_the_end(ledger.load(name))
        while pipeline.ingest(name, keys=hints).more:
            hints = ()
    return names


def _beyond_the_end(record: JobRecord | None) -> tuple[str, ...]:
    """Return where a run under the name of one that is closed would go on or start anew."""
    if record is None or record.status is not JobStatus.CLOSED:
        return ()
    further: list[keys.Key] = [keys.ManifestKey(record.job)]
    for worker, (seq, _) in record.watermarks.items():
        further += [keys.StepsKey(record.job, worker, seq), keys.EndKey(record.job, worker)]
    return tuple(str(key) for key in further)


def _chosen(names: tuple[str, ...], job: str | None) -> str:
    if not names:
        raise NotFoundError(
            "no recorded run: expected jobs/<job>/manifest.tw, as trainwarden.watch(out=…) writes"
        )
    if job is None and len(names) == 1:
        return names[0]
    if job in names:
        return str(job)
    said = f"no run {job}" if job else "several runs"
    raise NotFoundError(f"{said}: name one of {', '.join(names[:20])}")
