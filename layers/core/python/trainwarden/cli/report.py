"""``trainwarden report``: one HTML page about a recorded run."""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version
from pathlib import Path

from trainwarden.cli import own_rules, views
from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.recorded import EVERY, EXPECTED, Account, Run, account_of, find, open_place
from trainwarden.cli.render import Output, when
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.hook.config import LOCAL_OUT
from trainwarden.pipeline import check
from trainwarden.report import Judged, read, render
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import EntryKind, JobRecord, Ledger, ObjectStore
from trainwarden.store.within import S3

_SHOWN = 20  # runs that are named where one has to be chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own arguments."""
    parser.add_argument(
        "source",
        metavar="RUN",
        nargs="?",
        default=LOCAL_OUT,
        help="folder or s3://bucket/prefix that trainwarden.watch(out=…) wrote, or a job's name "
        f"(default: {LOCAL_OUT})",
    )
    parser.add_argument("--job", help="which run, if several lie there")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    own_rules.add_argument(parser)


def report(args: argparse.Namespace, out: Output) -> int:
    """Write a report of a recorded run: verdicts, curves, classes, trees; one HTML file."""
    objects, ledger, record, where = _judged(args)
    entries = tuple(ledger.entries(record.job, EntryKind.FINDING))
    judged = Judged(
        job=record.job,
        place=where,
        state=f"{record.status.value}{f' ({record.outcome})' if record.outcome else ''}",
        made=when(time.time()) or "",
        version=version("trainwarden"),
        rows=views.verdict_rows(record, entries),
        findings=views.finding_rows(entries),
        problems=views.problems(record),
    )
    body = render(judged, read(objects, record.job)).encode("utf-8")
    path = Path(args.out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    except OSError as error:
        raise BadInputError("a file that can be written", f"{path}: {error}") from error
    if out.as_json:
        out.document({"job": record.job, "file": str(path), "bytes": len(body)})
    out.line(f"wrote {path}: {record.job}, {len(body) / 1000:.0f} kB")
    return OK


def _judged(args: argparse.Namespace) -> tuple[ObjectStore, Ledger, JobRecord, str]:
    """Find the run: what was recorded is judged to its end, elsewhere the ledger knows."""
    source, bucket = args.source, args.source.startswith(S3)
    if not bucket and (args.at is not None or not Path(source).is_dir()):
        if args.job is not None and args.job != source:
            raise NotFoundError(f"there is no folder {source}: name either a job or a folder")
        place = place_of(args)
        return place.objects, place.ledger, load(place, source), place.title
    custom = own_rules.load(args.rules_folder)
    account = account_of(args)
    run = _one(source, args.job, account)
    objects, ledger = open_place(run.place, account), MemoryLedger()
    where = run.place if bucket else f"the folder {run.place}"
    return objects, ledger, check(objects, run.job, ledger=ledger, custom=custom), where


def _one(source: str, job: str | None, account: Account) -> Run:
    """Return the one run that is meant.

    Raises:
        NotFoundError: none or several.
    """
    runs = [*find(source, job or EVERY, account)]
    if len(runs) == 1:
        return runs[0]
    if job is not None and runs:
        places = ", ".join(f"{run.place}/jobs/{run.job}" for run in runs[:_SHOWN])
        raise NotFoundError(f"several runs {job} lie in {source}: name one of {places}")
    known = runs or [*find(source, EVERY, account)]
    if not known:
        raise NotFoundError(f"no recorded run in {source}: {EXPECTED}")
    names = ", ".join(dict.fromkeys(run.job for run in known[:_SHOWN]))
    said = f"no run {job} lies" if job is not None else "several runs lie"
    raise NotFoundError(f"{said} in {source}: name one of {names} with --job")
