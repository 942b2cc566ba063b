"""``trainwarden watch``: follow a job until it is over."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator

from trainwarden.cli import groups, views
from trainwarden.cli.commands import ISSUES, OK, load, place_of
from trainwarden.cli.place import Place
from trainwarden.cli.render import Output
from trainwarden.model import Json
from trainwarden.store.ports import EntryKind, JobStatus
from trainwarden.store.sagemaker import SageMakerJobs

Event = dict[str, Json]


def watch(args: argparse.Namespace, out: Output) -> int:
    """Follow a job live: its state, issues, findings and actions as they come."""
    place = place_of(args)
    if _starts(place, args.job):
        out.line(f"{args.job} has started and sent nothing yet")
        while place.ledger.load(args.job) is None and _starts(place, args.job):
            time.sleep(max(0.1, args.interval))
    load(place, args.job)
    for event in changes(place, args.job):
        if event["kind"] == "idle":
            time.sleep(max(0.1, args.interval))
            place.refresh()
        elif out.as_json:
            sys.stdout.write(json.dumps(event, default=str) + "\n")
            sys.stdout.flush()
        elif event["kind"] != "verdict" or event["status"] in views.ILL:
            out.line(sentence(event))
    rows = views.verdict_rows(load(place, args.job))
    if not out.as_json:
        groups.tell_fine(rows, out)
        groups.tell_blind([rows], out)
    return ISSUES if views.has_issues(rows) else OK


def _starts(place: Place, job: str) -> bool:
    """Whether SageMaker runs a job that the ledger has not heard of yet."""
    if place.session is None or place.ledger.load(job) is not None:
        return False
    training = SageMakerJobs(place.client("sagemaker")).describe(job)
    return training is not None and training.status == "InProgress"


def changes(place: Place, job: str) -> Iterator[Event]:
    """Yield what is new about a job; an ``idle`` event whenever there is nothing more now."""
    told: dict[str, Json] = {}
    while True:
        record = load(place, job)
        fresh: list[tuple[str, Event]] = [("job", {"kind": "job", **views.job_row(record)})]
        fresh[0][1].pop("last_seen")
        fresh += [
            (f"verdict {row['rule']}", {"kind": "verdict", **row, "inspected": None})
            for row in views.verdict_rows(record)
            if row["status"] != "InProgress"
        ]
        for kind in (EntryKind.FINDING, EntryKind.INCIDENT, EntryKind.ACTION):
            fresh += [
                (f"{kind.value} {entry.id}", {"kind": kind.value.lower(), **entry.body})
                for entry in place.ledger.entries(job, kind)
            ]
        for key, event in fresh:
            if told.get(key) != event:
                told[key] = event
                yield event
        if record.status is JobStatus.CLOSED:
            return
        yield {"kind": "idle"}


def sentence(event: Event) -> str:
    """Put an event into one line for a person."""
    kind = event["kind"]
    if kind == "job":
        return f"job {event['job']}: {event['status']} {event['outcome'] or ''}".rstrip()
    if kind == "verdict":
        since = "" if event["since_step"] is None else f" since step {event['since_step']}"
        note = "" if event["note"] is None else f": {event['note']}"
        cause = "" if event["cause"] is None else f", a symptom of {event['cause']}"
        return f"verdict {event['rule']}: {event['status']}{since}{cause}{note}"
    if kind == "finding":
        where = f" {event['tensor']}" if event["tensor"] else ""
        return f"step {event['step']} {event['rule']}{where}: {event['message']}"
    if {"kind", "rule", "outcome"} <= event.keys():
        return views.action(event)
    told = {key: value for key, value in event.items() if key not in {"kind", "time"} and value}
    return f"{kind}: " + ", ".join(f"{key} {value}" for key, value in told.items())
