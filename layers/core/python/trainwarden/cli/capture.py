"""``trainwarden capture``: ask a training loop's hook to capture in detail for a while."""

from __future__ import annotations

import argparse
import secrets

from trainwarden.cli.commands import OK, load, place_of
from trainwarden.cli.render import Output
from trainwarden.pipeline.control import ask_for_detail
from trainwarden.wire.control import DetailRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is captured, and for how long."""
    parser.add_argument("--steps", type=int, default=50, help="training steps (default: 50)")
    parser.add_argument("--interval", type=int, default=1, help="save each so many-th of them")
    parser.add_argument("--tensors", nargs="+", default=(), metavar="NAME",
                        help="tensors whose layers are saved as they are, too, in the first of "
                        "these steps; * stands for anything")  # fmt: skip


def capture(args: argparse.Namespace, out: Output) -> int:
    """Capture a running job in detail: its next steps are all saved, whatever was planned."""
    place = place_of(args)
    load(place, args.job)
    names = tuple(dict.fromkeys(args.tensors))
    request = DetailRequest(f"by-hand-{secrets.token_hex(4)}", args.steps, args.interval, names)
    control = ask_for_detail(place.objects, args.job, request)
    if out.as_json:
        out.document({"job": args.job, "version": control.version, "id": request.id})
    out.line(
        f"{args.job} is asked for {args.steps} steps in detail: it hears of it within a minute, "
        "if it still runs"
    )
    return OK
