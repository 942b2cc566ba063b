"""Finds out what lies at a place, and opens it as a trial."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.store.folder import FolderObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.trial.own import OwnSource
from trainwarden.trial.recorded import RecordedSource
from trainwarden.trial.trial import Trial
from trainwarden.wire.keys import job_name

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_TRACE = ("collections/", "index/", "training_job_end.ts")
_DEBUG_OUTPUT = "debug-output/"
_JOBS = "jobs/"
_SHOWN_JOBS = 5


def open_trial(
    place: str | os.PathLike[str] | ObjectStore,
    name: str | None = None,
    *,
    client: S3Client | None = None,
) -> Trial:
    """Open a recorded run.

    Args:
        place: Where it lies: a folder, ``s3://bucket/prefix``, or a store. That is what
            ``trainwarden.watch(out=…)`` wrote to, or ``jobs/<job>`` below it; or a trace of
            SageMaker Debugger: its ``debug-output``, or the folder of the job that holds it.
        name: Job to open where several lie there.
        client: boto3 S3 client; one is made if it is needed.

    Raises:
        NotFoundError: nothing is recorded there, or not that job.
        BadInputError: several jobs lie there and none was named.
        MalformedObjectError: what lies there cannot be read.
    """
    if isinstance(place, (str, os.PathLike)):
        objects, prefix, shown = _located(os.fspath(place), client)
    else:
        objects, prefix, shown = place, "", "the store"
    for start in (prefix, prefix + _DEBUG_OUTPUT):
        if _holds_trace(objects, start):
            parts = [part for part in (prefix or shown).split("/") if part != _DEBUG_OUTPUT[:-1]]
            return Trial(RecordedSource(objects, start, name or "/".join(parts[-2:]).strip("/")))
    return Trial(OwnSource(objects, _job(objects, prefix, name, shown)))


def _located(place: str, client: S3Client | None) -> tuple[ObjectStore, str, str]:
    """Return the store, the prefix within it, and how to say where that is."""
    if not place.startswith("s3://"):
        folder = Path(place).absolute()
        if not folder.is_dir():
            raise NotFoundError(f"there is no folder {place}")
        if folder.parent.name == _JOBS[:-1]:  # the folder of one job of ours
            return FolderObjects(folder.parent.parent), f"{_JOBS}{folder.name}/", str(folder)
        return FolderObjects(folder), "", str(folder)
    bucket, _, path = place.removeprefix("s3://").partition("/")
    if not bucket:
        raise BadInputError("s3://bucket/prefix", repr(place))
    from trainwarden.store.s3 import S3Objects

    if client is None:
        import boto3

        client = boto3.client("s3")
    return S3Objects(bucket, client), f"{path.strip('/')}/" if path.strip("/") else "", place


def _holds_trace(objects: ObjectStore, prefix: str) -> bool:
    return any(next(iter(objects.keys(prefix + part)), None) is not None for part in _TRACE)


def _job(objects: ObjectStore, prefix: str, name: str | None, shown: str) -> str:
    """Return the one job of ours that lies there."""
    if prefix.startswith(_JOBS):
        return job_name(prefix.removeprefix(_JOBS).split("/")[0])
    if prefix:
        raise NotFoundError(
            f"nothing is recorded at {shown}: expected index/ and collections/ of SageMaker "
            "Debugger, or a bucket with jobs/ that trainwarden.watch wrote"
        )
    if name is not None:
        return job_name(name)
    jobs = _jobs(objects)
    if not jobs:
        raise NotFoundError(f"nothing is recorded at {shown}: neither jobs/ nor index/ is there")
    if len(jobs) > 1:
        listed = ", ".join(jobs[:_SHOWN_JOBS]) + (", …" if len(jobs) > _SHOWN_JOBS else "")
        raise BadInputError("one job", f"{listed} at {shown}", "say which: open_trial(place, name)")
    return jobs[0]


def _jobs(objects: ObjectStore) -> list[str]:
    """Return the names of the first jobs that lie there."""
    found: list[str] = []
    after = ""
    while len(found) <= _SHOWN_JOBS:
        key = next(islice(objects.keys(_JOBS, after=after), 1), None)
        if key is None:
            break
        job = key.split("/")[1]
        found.append(job)
        after = f"{_JOBS}{job}/\U0010ffff"
    return found
