"""Recorded runs that a command names: in a folder, or below an address in S3."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden.cli.place import client, embedded_or_aws
from trainwarden.errors import NotFoundError
from trainwarden.pipeline import JOBS, holds, jobs_in
from trainwarden.store.folder import FolderObjects
from trainwarden.store.listing import folders
from trainwarden.store.within import S3, Within, bucket_and_prefix

if TYPE_CHECKING:
    from trainwarden.store.ports import ObjectStore

EVERY = "*"
EXPECTED = "expected jobs/<job>/manifest.tw below it, as trainwarden.watch(out=…) writes"
_JOBS = JOBS.rstrip("/")
_PATTERN = re.compile(r"[*?\[]")


class Run(NamedTuple):
    """One recorded run.

    Attributes:
        place: The folder or ``s3://bucket/prefix`` that holds ``jobs/``.
        job: Its name.
    """

    place: str
    job: str


class Account(NamedTuple):
    """Where ``s3://`` leads: ``aws``, ``local`` or, if None, local where it is up.

    ``region`` and ``profile`` are AWS's; None leaves them to the environment.
    """

    at: str | None = None
    region: str | None = None
    profile: str | None = None


def account_of(args: argparse.Namespace) -> Account:
    """Read the options of a command."""
    return Account(args.at, args.region, args.profile)


def open_place(place: str, account: Account = Account()) -> ObjectStore:  # noqa: B008 - immutable
    """Open what holds ``jobs/``.

    Raises:
        BadInputError: an address without a bucket, or no usable credentials.
        NotFoundError: no embedded AWS, no such profile.
    """
    if not place.startswith(S3):
        return FolderObjects(Path(place))
    bucket, prefix = bucket_and_prefix(place)
    from trainwarden.store.aws_errors import translated
    from trainwarden.store.s3 import S3Objects

    with translated("make a client for s3", permission=""):
        session, endpoint = embedded_or_aws(account.at, account.region, account.profile)
        objects: Any = S3Objects(bucket, client(session, "s3", endpoint))
    return Within(objects, prefix) if prefix else objects


def find(place: str, pattern: str = EVERY, account: Account = Account()) -> Iterator[Run]:  # noqa: B008
    """Find the recorded runs at a place whose job's name matches.

    Args:
        place: Folder or ``s3://bucket/prefix`` that holds ``jobs/``, or one of its jobs, or one
            that holds several such places.
        pattern: A name, or a pattern with ``*`` and ``?``.
        account: Where addresses in S3 lead.

    Raises:
        NotFoundError: no such folder.
        BadInputError: no such bucket, or access denied.
        RetryableError: S3 does not answer.
    """
    here = _shown(place)
    objects = open_place(here, account)
    if _any(objects, JOBS):
        yield from _matching(here, objects, pattern)
        return
    head, _, name = here.rpartition("/")
    above, _, last = head.rpartition("/")
    if name == _JOBS and _is_place(head):
        yield from _matching(head, open_place(head, account), pattern)
    elif last == _JOBS and _is_place(above) and holds(open_place(above, account), name):
        if fnmatch.fnmatchcase(name, pattern):
            yield Run(above, name)
    else:
        for inner in _inside(here, objects):
            within = Within(objects, f"{inner}/")
            yield from _matching(f"{here}/{inner}", within, pattern)


def _shown(place: str) -> str:
    if place.startswith(S3):
        bucket, prefix = bucket_and_prefix(place)
        return f"{S3}{bucket}/{prefix}".rstrip("/")
    folder = Path(place)
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {place}: give what watch(out=...) wrote to")
    return os.fspath(folder if _holds_jobs(folder) else folder.resolve())


def _holds_jobs(folder: Path) -> bool:
    return (folder / _JOBS).is_dir()


def _is_place(text: str) -> bool:
    return bool(text.removeprefix(S3)) and text != S3.rstrip("/") and f"{text}/" != S3


def _any(objects: ObjectStore, prefix: str) -> bool:
    return next(iter(objects.keys(prefix)), None) is not None


def _inside(here: str, objects: ObjectStore) -> Iterable[str]:
    if here.startswith(S3):
        return (one for one in folders(objects, "") if _any(objects, f"{one}/{JOBS}"))
    return (one.name for one in sorted(Path(here).iterdir()) if _holds_jobs(one))


def _matching(place: str, objects: ObjectStore, pattern: str) -> Iterator[Run]:
    if not _PATTERN.search(pattern):
        if holds(objects, pattern):
            yield Run(place, pattern)
        return
    for job in jobs_in(objects):
        if fnmatch.fnmatchcase(job, pattern):
            yield Run(place, job)
