"""``trainwarden``: the entry point of the command line."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from trainwarden.errors import BadInputError, NotFoundError, TrainwardenError
from trainwarden.hook.config import LOCAL_OUT

Command = Callable[..., int]
USAGE, BROKEN, INTERRUPTED = 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 all right, 1 issues were found, 2 wrong use, 3 something out there failed.
    """
    try:
        from trainwarden.cli.render import Output
    except ModuleNotFoundError as exc:
        sys.stderr.write(f"{exc}: the command line needs the extra, trainwarden[cli]\n")
        return USAGE
    sys.stdout = sys.stdout or io.StringIO()  # None where it is closed
    args = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot print all that we say
    try:
        code = int(args.run(args, Output(as_json=args.json)))
        sys.stdout.flush()
    except (NotFoundError, BadInputError) as exc:
        sys.stderr.write(f"trainwarden: {exc}\n")
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (TrainwardenError, OSError) as exc:
        sys.stderr.write(f"trainwarden: {exc}\n")
        return BROKEN
    return code


def _parser() -> argparse.ArgumentParser:
    from trainwarden.cli import (
        capture,
        commands,
        doctor,
        mute,
        own_rules,
        replay,
        report,
        run,
        scaffold,
        stop,
        watch,
    )
    from trainwarden.embedded.commands import register

    parser = argparse.ArgumentParser(
        prog="trainwarden",
        description="Find out early that a training run has gone wrong, where and since when.",
    )
    parser.add_argument("--version", action="version", version=_versions())
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(verbs, "jobs", commands.jobs, where=True)
    shown = _add(verbs, "verdicts", commands.verdicts, where=True, job=True)
    shown.add_argument("--fail", action="store_true", help="exit with 1 if a rule found issues")
    listed = _add(verbs, "findings", commands.findings, where=True, job=True)
    listed.add_argument("--rule", help="of this rule only")
    followed = _add(verbs, "watch", watch.watch, where=True, job=True)
    followed.add_argument("--interval", type=_seconds, default=2.0, help="seconds between looks")
    ended = _add(verbs, "stop", stop.stop, where=True, job=True)
    ended.add_argument("--reason", default="a person asked for it", help="what the job is told")
    capture.add_arguments(_add(verbs, "capture", capture.capture, where=True, job=True))
    muted = _add(verbs, "mute", mute.mute, where=True, job=True)
    muted.add_argument("rule", nargs="?", help="only this rule; without it the whole job")
    muted.add_argument("--undo", action="store_true", help="announce again")
    scaffold.add_arguments(_add(verbs, "rules", commands.rules))
    told = _add(verbs, "explain", commands.explain, where=True)
    told.add_argument("rule", help="name or code of a rule")
    told.add_argument("--job", help="what the rule says of this job, and how sure it is")
    own_rules.add_argument(told)
    checked = _add(verbs, "check", commands.check)
    checked.add_argument(
        "folder",
        nargs="?",
        default=LOCAL_OUT,
        help=f"what trainwarden.watch(out=FOLDER) wrote (default: {LOCAL_OUT})",
    )
    own_rules.add_argument(checked)
    checked.add_argument("--exit-zero", action="store_true", help="exit with 0 in spite of issues")
    replay.add_arguments(_add(verbs, "replay", replay.replay))
    report.add_arguments(_add(verbs, "report", report.report, where=True))
    run.add_arguments(_add(verbs, "run", run.run))
    examined = _add(verbs, "doctor", doctor.doctor, where=True)
    examined.add_argument("job", nargs="?", help="also why this job does not show up or stop")
    register(verbs)
    return parser


def _add(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Command,
    *,
    where: bool = False,
    job: bool = False,
) -> argparse.ArgumentParser:
    text = (run.__doc__ or "").splitlines()[0]
    parser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    if where:
        parser.add_argument("--at", help="aws, local, or a folder (default: local if up, else aws)")
        parser.add_argument("--stack", help="name of the CloudFormation stack")
        parser.add_argument("--region", help="AWS region")
        parser.add_argument("--profile", help="AWS profile")
    if job:
        parser.add_argument("job", help="name of the training job")
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:  # noqa: PLR2004 - an hour
        raise argparse.ArgumentTypeError(f"expected more than 0 and at most 3600, found {text}")
    return seconds


def _versions() -> str:
    from trainwarden.events import VERSION as EVENT_VERSION
    from trainwarden.wire.codec import WIRE_VERSION

    return f"trainwarden {version('trainwarden')}, wire {WIRE_VERSION}, events {EVENT_VERSION}"


if __name__ == "__main__":
    sys.exit(main())
