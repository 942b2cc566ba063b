"""Finds out what lies at a place, and opens it as a trial."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.store.folder import FolderObjects
from trainwarden.store.listing import folders
from trainwarden.store.ports import ObjectStore
from trainwarden.store.within import S3, Within, bucket_and_prefix
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
    objects, prefix = _ours(objects, prefix)
    return Trial(OwnSource(objects, _job(objects, prefix, name, shown)))


def _located(place: str, client: S3Client | None) -> tuple[ObjectStore, str, str]:
    """Return the store, the prefix within it, and how to say where that is."""
    if not place.startswith(S3):
        folder = Path(place).absolute()
        if not folder.is_dir():
            raise NotFoundError(f"there is no folder {place}")
        if folder.parent.name == _JOBS[:-1]:  # the folder of one job of ours
            return FolderObjects(folder.parent.parent), f"{_JOBS}{folder.name}/", str(folder)
        return FolderObjects(folder), "", str(folder)
    bucket, prefix = bucket_and_prefix(place)
    from trainwarden.store.s3 import S3Objects

    if client is None:
        import boto3

        client = boto3.client("s3")
    return S3Objects(bucket, client), prefix, place


def _holds_trace(objects: ObjectStore, prefix: str) -> bool:
    return any(next(iter(objects.keys(prefix + part)), None) is not None for part in _TRACE)


def _ours(objects: ObjectStore, prefix: str) -> tuple[ObjectStore, str]:
    """Return the store whose ``jobs/`` are ours, and the prefix of one job where one is meant."""
    base, found, job = f"/{prefix}".rpartition(f"/{_JOBS}")
    if not found:
        base, job = prefix, ""
    base = base.strip("/")
    return (Within(objects, f"{base}/") if base else objects), f"{_JOBS}{job}" if job else ""


def _job(objects: ObjectStore, prefix: str, name: str | None, shown: str) -> str:
    """Return the one job of ours that lies there."""
    if prefix:
        return job_name(prefix.removeprefix(_JOBS).split("/")[0])
    if name is not None:
        return job_name(name)
    jobs = [*islice(folders(objects, _JOBS), _SHOWN_JOBS + 1)]
    if not jobs:
        raise NotFoundError(
            f"nothing is recorded at {shown}: expected jobs/ that trainwarden.watch wrote, or "
            "index/ and collections/ of SageMaker Debugger"
        )
    if len(jobs) > 1:
        listed = ", ".join(jobs[:_SHOWN_JOBS]) + (", …" if len(jobs) > _SHOWN_JOBS else "")
        raise BadInputError("one job", f"{listed} at {shown}", "say which: open_trial(place, name)")
    return jobs[0]
