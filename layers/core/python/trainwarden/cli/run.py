"""``trainwarden run``: a training command, watched without a line in its script."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import trainwarden.hook.auto as auto_package
from trainwarden.cli.render import Output
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.hook.auto import VARIABLE
from trainwarden.model import Json

SITE = Path(auto_package.__file__).parent / "site"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``run`` takes."""
    parser.add_argument("--job", help="job name")
    parser.add_argument("--out", help="s3://bucket or a folder")
    parser.add_argument("--save-interval", type=int, help="steps from one saved step to the next")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what trains"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """Run a training command and watch what it trains, without a change in its script."""
    del out
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise BadInputError("a command", "none", "trainwarden run -- python train.py")
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment(args, dict(os.environ)))  # noqa: S606 - the user's own command
    except OSError as error:
        raise NotFoundError(f"{command[0]}: {error.strerror}") from error


def environment(args: argparse.Namespace, environ: dict[str, str]) -> dict[str, str]:
    """Return the environment of the command; what it has under ``TRAINWARDEN_AUTO`` is kept."""
    asked = {"job": args.job, "out": args.out, "save_interval": args.save_interval}
    options: dict[str, Json] = {name: value for name, value in asked.items() if value is not None}
    before = environ.get(VARIABLE, "")
    known = json.loads(before) if before.startswith("{") else {}
    path = [str(SITE), *filter(None, [environ.get("PYTHONPATH", "")])]
    return {
        **environ,
        VARIABLE: json.dumps({**known, **options}),
        "PYTHONPATH": os.pathsep.join(path),
    }
