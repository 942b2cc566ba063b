"""``trainwarden stop``: ask a training loop to end after a checkpoint."""

from __future__ import annotations

import argparse
from dataclasses import replace

from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.render import Output
from trainwarden.errors import MalformedObjectError
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import MAX_CONTROL_BYTES, Control
from trainwarden.wire.keys import control_key


def stop(args: argparse.Namespace, out: Output) -> int:
    """Ask a job's training loop to end after its step: it saves a checkpoint and leaves."""
    place = place_of(args)
    load(place, args.job)
    control = asked(place.objects, args.job, args.reason)
    place.objects.put(control_key(args.job), control.to_bytes())
    if out.as_json:
        out.document({"job": args.job, "version": control.version})
    out.line(f"{args.job} is asked to stop: it hears of it within a minute, if it still runs")
    return OK


def asked(objects: ObjectStore, job: str, reason: str) -> Control:
    """Return the control document that asks for a stop and replaces the one that is there."""
    body = objects.get(control_key(job), max_bytes=MAX_CONTROL_BYTES)
    try:
        before = Control.from_bytes(body) if body else Control(version=0)
    except MalformedObjectError:
        before = Control(version=0)
    return replace(before, version=before.version + 1, stop=True, reason=reason)
