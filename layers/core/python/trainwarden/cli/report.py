"""``trainwarden report``: one HTML page about a recorded run."""

from __future__ import annotations

import argparse
import time
from importlib.metadata import version
from pathlib import Path

from trainwarden.cli import own_rules, views
from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.render import Output, when
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.pipeline import check, jobs_in
from trainwarden.report import Judged, read, render
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import EntryKind, JobRecord, Ledger, ObjectStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's own arguments."""
    parser.add_argument(
        "source",
        metavar="RUN",
        help="folder that trainwarden.watch(out=FOLDER) wrote, or the name of a job",
    )
    parser.add_argument("--job", help="which run, if several lie in the folder")
    parser.add_argument("--out", default="report.html", help="file to write (default: report.html)")
    own_rules.add_argument(parser)


def report(args: argparse.Namespace, out: Output) -> int:
    """Write a report of a recorded run: verdicts, curves, classes, trees; one HTML file."""
    own_rules.load(args.rules_folder)
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
    """Find the run: a folder is judged to its end, elsewhere the ledger knows."""
    folder = Path(args.source)
    if args.at is not None or not folder.is_dir():
        if args.job is not None and args.job != args.source:
            raise NotFoundError(f"there is no folder {folder}: name either a job or a folder")
        place = place_of(args)
        return place.objects, place.ledger, load(place, args.source), place.title
    job = args.job
    if folder.resolve().parent.name == "jobs":  # of one job
        folder, job = folder.resolve().parent.parent, folder.resolve().name
    objects, ledger = FolderObjects(folder), MemoryLedger()
    names = jobs_in(objects)
    if len(names) > 1 and job is None:
        raise NotFoundError(f"several runs lie in {folder}: name one of {', '.join(names[:20])} "
                            "with --job")  # fmt: skip
    return objects, ledger, check(objects, job, ledger=ledger), f"the folder {folder}"
