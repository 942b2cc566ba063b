"""``trainwarden stop``: ask a training loop to end after a checkpoint."""

from __future__ import annotations

import argparse

from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.render import Output
from trainwarden.pipeline.control import ask_to_stop


def stop(args: argparse.Namespace, out: Output) -> int:
    """Ask a job's training loop to end after its step: it saves a checkpoint and leaves."""
    place = place_of(args)
    load(place, args.job)
    control = ask_to_stop(place.objects, args.job, args.reason)
    if out.as_json:
        out.document({"job": args.job, "version": control.version})
    out.line(f"{args.job} is asked to stop: it hears of it within a minute, if it still runs")
    return OK
