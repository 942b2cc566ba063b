"""``trainwarden replay``: any rules over recorded runs, many at a time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

from trainwarden.cli import own_rules
from trainwarden.cli.commands import ISSUES, OK
from trainwarden.cli.progress import followed
from trainwarden.cli.recorded import EVERY, EXPECTED, Account, Run, account_of, find, open_place
from trainwarden.cli.render import Output
from trainwarden.documents import read_document
from trainwarden.errors import BadInputError, NotFoundError, TrainwardenError
from trainwarden.hook.config import LOCAL_OUT
from trainwarden.model import Json
from trainwarden.pipeline.replaying import Replayed, replay_run, understood

COLUMNS = ("run", "last_step", "would_stop", "saved", "fires")
FIRED_COLUMNS = ("run", "step", "rule", "severity", "cause", "message")
COMPARED_COLUMNS = ("run", "new", "gone", "both")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``replay`` takes."""
    parser.add_argument("runs", nargs="*", metavar="RUN", default=[LOCAL_OUT],
                        help="folder or s3://bucket/prefix of runs, or one of them (default: "
                        f"{LOCAL_OUT})")  # fmt: skip
    parser.add_argument("--at", choices=("aws", "local"),
                        help="where s3:// leads (default: local if up, else aws)")  # fmt: skip
    parser.add_argument("--region", help="AWS region")
    parser.add_argument("--profile", help="AWS profile")
    parser.add_argument(
        "--job", default=EVERY, help="only jobs whose name matches, such as 'bert-*'"
    )
    parser.add_argument("--rules", help="rules, such as 'default -Overfit' or 'DeadRelu Overfit'")
    parser.add_argument("--rules-profile", choices=("default", "sagemaker"),
                        help="whose meaning rules have")  # fmt: skip
    parser.add_argument("--rules-file", help="rules document: JSON or YAML, as in watch(rules=...)")
    parser.add_argument("--set", action="append", default=[], metavar="RULE.PARAMETER=VALUE",
                        dest="settings", help="change a parameter; may be given again")  # fmt: skip
    parser.add_argument("--stop-on", choices=("error", "warning", "never"), default="error",
                        help="least severity that would have stopped a run")  # fmt: skip
    parser.add_argument("--compare", action="store_true",
                        help="what fires new and what no longer, against the defaults")  # fmt: skip
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1),
                        help="processes")  # fmt: skip
    own_rules.add_argument(parser)
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 in spite of issues")


def replay(args: argparse.Namespace, out: Output) -> int:
    """Run any rules over recorded runs: what would have fired when, and what a stop had saved."""
    own_rules.load(args.rules_folder)  # from now on their names are known
    rules = document(args)
    problems = understood(rules)
    if problems:
        raise BadInputError("rules that are understood", "; ".join(problems))
    account = account_of(args)
    found = [run for place in args.runs for run in find(place, args.job, account)]
    runs = [*dict.fromkeys(found)]
    if not runs:
        places = " ".join(args.runs)
        asked = "" if args.job == EVERY else f" matches --job {args.job!r}"
        raise NotFoundError(f"no recorded run in {places}{asked}: {EXPECTED}")
    replayed = _all(runs, rules, args, "replaying")
    usual = [args.rules_profile or "default"]
    before = _all(runs, usual, args, "replaying by the defaults") if args.compare else {}
    if out.as_json:
        out.document([_document(run, one, before.get(run)) for run, one in replayed.items()])
    elif args.compare:
        rows = [_compared(run, before[run], one) for run, one in replayed.items()]
        out.rows(rows, COMPARED_COLUMNS, "no runs")
    else:
        _tell(replayed, out)
    ill = any(one.fired or one.last_step < 0 for one in replayed.values())
    return ISSUES if ill and not args.exit_zero else OK


def document(args: argparse.Namespace) -> Json:
    """Build the rules document that the options ask for.

    Raises:
        BadInputError: an unreadable file, or a setting that is no RULE.PARAMETER=VALUE.
    """
    entries: list[Json] = []
    if args.rules_file:
        entries += _from_file(Path(args.rules_file))
    words = (args.rules or "").replace(",", " ").split()
    if args.rules_profile or not (args.rules_file or any(word[0] != "-" for word in words)):
        entries.insert(0, args.rules_profile or "default")
    entries += [{word[1:]: False} if word[0] == "-" else word for word in words]
    tuned: dict[str, dict[str, str]] = {}
    for setting in args.settings:
        name, equals, value = setting.partition("=")
        rule, dot, parameter = name.partition(".")
        if not (equals and dot and rule and parameter):
            raise BadInputError("RULE.PARAMETER=VALUE", repr(setting), "as Overfit.patience=5")
        tuned.setdefault(rule, {})[parameter] = value
    return [*entries, *({rule: values} for rule, values in tuned.items())]


def _from_file(path: Path) -> list[Json]:
    found = read_document(path, "rules")
    if isinstance(found, dict) and not {"rule", "set", "RuleConfiguration"} & found.keys():
        return ["default", *({rule: settings} for rule, settings in found.items())]
    return found if isinstance(found, list) else [found]


def replay_one(
    run: Run, rules: Json, stop_on: str, account: Account, folder: str | None = None
) -> Replayed:
    """Replay one run; what is wrong with it is told as its result, so that others go on."""
    try:
        objects, custom = open_place(run.place, account), own_rules.load(folder)
        return replay_run(objects, run.job, rules, stop_on=stop_on, custom=custom)
    except TrainwardenError as error:
        return Replayed(run.job, problems=(str(error),))


def _all(
    runs: Sequence[Run], rules: Json, args: argparse.Namespace, what: str
) -> dict[Run, Replayed]:
    found: dict[Run, Replayed] = {}
    account = account_of(args)
    workers = max(1, min(args.workers, len(runs)))
    options = (args.stop_on, account, args.rules_folder)
    with ProcessPoolExecutor(workers) as pool:
        work = {pool.submit(replay_one, run, rules, *options): run for run in runs}
        try:
            for future in followed(as_completed(work), len(runs), what):
                found[work[future]] = future.result()
        except BrokenProcessPool as error:
            remedy = "is there memory enough, and does no rule of your own end the process?"
            raise BadInputError("runs that can be judged", "a process that died", remedy) from error
        finally:  # the pool would go on with all that is left after Ctrl-C
            pool.shutdown(cancel_futures=True)
    return {run: found[run] for run in runs}


def _tell(replayed: dict[Run, Replayed], out: Output) -> None:
    fired = [
        {"run": run.job, "step": f.step, "rule": f.rule, "severity": f.severity,
         "cause": f.cause or None, "message": f.message}
        for run, one in replayed.items()
        for f in one.fired
    ]  # fmt: skip
    if fired:
        out.rows(fired, FIRED_COLUMNS, "")
        out.line("")
    out.rows([_row(run, one) for run, one in replayed.items()], COLUMNS, "no runs")
    for run, one in replayed.items():
        for problem in one.problems[:5]:
            out.line(f"{run.job}: {problem}")
    stops = [one.stop for one in replayed.values() if one.stop]
    ill = sum(bool(one.fired) for one in replayed.values())
    out.line(
        f"{ill} of {len(replayed)} with issues; {len(stops)} would have been stopped, saving "
        f"{sum(s.steps for s in stops)} steps and {sum(s.seconds for s in stops):.0f} s"
    )


def _row(run: Run, one: Replayed) -> dict[str, Json]:
    stop = one.stop
    return {
        "run": run.job,
        "last_step": one.last_step if one.last_step >= 0 else None,
        "would_stop": f"{stop.rule} at {stop.step}" if stop else None,
        "saved": f"{stop.share:.0%}, {stop.steps} steps, {stop.seconds:.0f} s" if stop else None,
        "fires": ", ".join(f"{f.rule}@{f.step}" for f in one.fired) or None,
    }


def _compared(run: Run, before: Replayed, after: Replayed) -> dict[str, Json]:
    old, new = ({f.rule: f.step for f in one.fired} for one in (before, after))
    return {
        "run": run.job,
        "new": _listed({rule: step for rule, step in new.items() if rule not in old}),
        "gone": _listed({rule: step for rule, step in old.items() if rule not in new}),
        "both": _listed({rule: step for rule, step in new.items() if rule in old}),
    }


def _listed(found: dict[str, int]) -> str | None:
    return ", ".join(f"{rule}@{step}" for rule, step in found.items()) or None


def _document(run: Run, one: Replayed, before: Replayed | None) -> dict[str, Json]:
    stop = one.stop
    found: dict[str, Json] = {
        "place": run.place,
        "job": run.job,
        "last_step": one.last_step,
        "fired": [asdict(fired) for fired in one.fired],
        "stop": asdict(stop) if stop else None,
        "not_evaluated": list(one.blind),
        "problems": list(one.problems),
    }
    if before is not None:
        found["compared"] = _compared(run, before, one)
    return found
