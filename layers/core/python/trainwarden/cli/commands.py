"""The commands that read: jobs, verdicts, findings, rules, explain, check."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trainwarden.cli import groups, own_rules, views
from trainwarden.cli.place import Place, resolve
from trainwarden.cli.recorded import Run, find, open_place
from trainwarden.cli.render import Output
from trainwarden.errors import NotFoundError
from trainwarden.model import Json
from trainwarden.pipeline import check as judge
from trainwarden.pipeline.incidents import sentences
from trainwarden.rules import registry, runbook
from trainwarden.rules._pages import page
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import CustomRules, EntryKind, JobRecord

OK, ISSUES = 0, 1
_NAMED = 20  # runs with issues, in the last line


def place_of(args: argparse.Namespace) -> Place:
    """Resolve the place that a command's options name."""
    return resolve(args.at, stack=args.stack, region=args.region, profile=args.profile)


def load(place: Place, job: str) -> JobRecord:
    """Load a job's record.

    Raises:
        NotFoundError: the place knows no such job; names those that it knows.
    """
    record = place.ledger.load(job)
    if record is not None:
        return record
    known = sorted(other.job for other in place.ledger.jobs())
    hint = f"it knows {', '.join(known[:10])}" if known else "it knows no job at all"
    raise NotFoundError(
        f"{place.title} knows no job {job}: {hint}; `trainwarden doctor {job} {place.flag}` "
        "says why a job does not show up"
    )


def jobs(args: argparse.Namespace, out: Output) -> int:
    """List the jobs, newest first."""
    place = place_of(args)
    records = sorted(place.ledger.jobs(), key=lambda record: -record.opened_at)
    out.rows(
        [views.job_row(record) for record in records],
        views.JOB_COLUMNS,
        f"no jobs on {place.title} yet",
    )
    return OK


def verdicts(args: argparse.Namespace, out: Output) -> int:
    """Show where each rule stands for a job."""
    place = place_of(args)
    record = load(place, args.job)
    rows = views.verdict_rows(record, place.ledger.entries(args.job, EntryKind.FINDING))
    state = f"{record.status.value}{f' ({record.outcome})' if record.outcome else ''}"
    out.line(f"{record.job} on {place.title}: {state}")
    if out.as_json:
        problems = views.problems(record)
        out.document({**views.job_row(record), "verdicts": rows, "problems": problems})
    else:
        tell_problems(views.problems(record), out)
        groups.tell(rows, out, f"no rule has judged it yet: trainwarden watch {record.job}")
        for entry in place.ledger.entries(args.job, EntryKind.ACTION):
            out.line(views.action(entry.body))
    return ISSUES if args.fail and views.has_issues(rows) else OK


def tell_problems(problems: Iterable[str], out: Output) -> None:
    """Say which settings were not understood; the rest of them works."""
    for problem in problems:
        out.line(f"not understood: {problem}")


def findings(args: argparse.Namespace, out: Output) -> int:
    """List the evidence, step by step."""
    place = place_of(args)
    record = load(place, args.job)
    known = [row["rule"] for row in views.verdict_rows(record)]
    if args.rule and args.rule not in known:
        raise NotFoundError(f"{args.job} has no rule {args.rule}: it has {', '.join(known)}")
    rows = views.finding_rows(place.ledger.entries(args.job, EntryKind.FINDING))
    if args.rule:
        rows = [row for row in rows if row["rule"] == args.rule]
    out.rows(rows, views.FINDING_COLUMNS, "no findings")
    return OK


def check(args: argparse.Namespace, out: Output) -> int:
    """Judge every run recorded to a folder; fail if one has issues."""
    custom = own_rules.load(args.rules_folder)
    runs = [*find(args.folder)] if Path(args.folder).is_dir() else []
    if not runs:
        raise NotFoundError(
            f"no recorded run lies in {args.folder}: expected jobs/<job>/manifest.tw, as "
            f"trainwarden.watch(model, optimizer, out={args.folder!r}) writes it"
        )
    judged = [_checked(run, custom) for run in runs]
    if out.as_json:
        out.document([one._asdict() for one in judged])
    else:
        for one in judged:
            out.line(f"{one.job}:")
            tell_problems(one.problems, out)
            for sentence in one.incidents:
                out.line(sentence)
            groups.tell_judged(one.verdicts, out, "no rule has judged this run")
            out.line("")
        groups.tell_blind([one.verdicts for one in judged], out)
    ill = [one.job for one in judged if views.has_issues(one.verdicts)]
    code = ISSUES if ill and not args.exit_zero else OK
    out.line(f"{_summed_up(len(judged), ill)} (exit status {code})")
    return code


class _Checked(NamedTuple):
    """One recorded run as ``check`` tells it."""

    job: str
    verdicts: list[dict[str, Json]]
    problems: list[str]
    incidents: list[str]


def _checked(run: Run, custom: CustomRules | None) -> _Checked:
    ledger = MemoryLedger()
    record = judge(open_place(run.place), run.job, ledger=ledger, custom=custom)
    rows = views.verdict_rows(record, ledger.entries(run.job, EntryKind.FINDING))
    told = [*sentences(ledger.entries(run.job, EntryKind.INCIDENT))]
    return _Checked(run.job, rows, views.problems(record), told)


def _summed_up(runs: int, ill: list[str]) -> str:
    what = "1 run" if runs == 1 else f"{runs} runs"
    names = ", ".join(ill[:_NAMED]) + (", …" if len(ill) > _NAMED else "")
    return f"{what}, {len(ill)} with issues: {names}" if ill else f"{what}, none with issues"


def rules(_: argparse.Namespace, out: Output) -> int:
    """List the catalogue of rules."""
    out.rows(views.rule_rows(), views.RULE_COLUMNS, "no rules")
    return OK


def explain(args: argparse.Namespace, out: Output) -> int:
    """Show a rule's runbook and parameters, or what it says of a job."""
    own_rules.load(args.rules_folder)
    if args.job:
        return _explain_verdict(args, out)
    found = {
        **{rule.meta.code.lower(): name for name, rule in registry().items()},
        **{name.lower(): name for name in registry()},
    }
    name = found.get(args.rule.lower())
    if name is None:
        import difflib

        near = difflib.get_close_matches(args.rule.lower(), found, 1, 0.5)
        hint = f"did you mean {found[near[0]]}?" if near else "`trainwarden rules` lists them"
        raise NotFoundError(f"there is no rule {args.rule}: {hint}")
    if out.as_json:
        row = next(row for row in views.rule_rows() if row["rule"] == name)
        out.document({**row, "runbook": runbook(name), "doc": inspect.getdoc(registry()[name])})
    else:
        out.markdown(page(name))
    return OK


def _explain_verdict(args: argparse.Namespace, out: Output) -> int:
    """Show a rule's verdict of a job: its group, and the evidence with how sure the rule is."""
    place = place_of(args)
    record = load(place, args.job)
    entries = tuple(place.ledger.entries(args.job, EntryKind.FINDING))
    rows = views.verdict_rows(record, entries)
    word = args.rule.lower()
    row = next((r for r in rows if word in {str(r["rule"]).lower(), str(r["code"]).lower()}), None)
    if row is None:
        known = ", ".join(str(one["rule"]) for one in rows)
        raise NotFoundError(f"{args.job} has no rule {args.rule}: it has {known}")
    evidence = [one for one in views.finding_rows(entries) if one["rule"] == row["rule"]]
    symptoms = [one for one in rows if one["cause"] == row["rule"]]
    if out.as_json:
        out.document({**row, "explains": symptoms, "evidence": evidence})
        return OK
    groups.group(row, symptoms, out)
    if row["cause"]:
        out.line(
            f"a symptom of {row['cause']}: trainwarden explain {row['cause']} --job {args.job}"
        )
    out.rows(evidence, views.EVIDENCE_COLUMNS, "no findings")
    return OK
