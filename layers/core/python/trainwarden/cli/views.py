"""Rows of the command line's tables, made from records: no I/O, no formatting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trainwarden.cli.render import when
from trainwarden.config import JobConfig
from trainwarden.model import Json, Status, Verdict
from trainwarden.pipeline import verdicts
from trainwarden.rules import PROFILES, names, parameters, registry, runbook
from trainwarden.store.ports import Entry, JobRecord

JOB_COLUMNS = ("job", "status", "outcome", "verdict", "rules", "last_seen")
EVIDENCE_COLUMNS = ("step", "first_step", "tensor", "value", "limit", "confidence", "evidence")
FINDING_COLUMNS = ("step", "rule", "severity", "message")
RULE_COLUMNS = ("rule", "code", "severity", "tier", "profile", "what")
# A rule's own advice on what to capture speaks of PyTorch, or of trees; for other runs a page does.
_PAGES = {name: name for name in ("xgboost", "lightgbm", "jax", "keras")} | {
    "scikit-learn": "sklearn"
}
_BOOSTED = ("xgboost", "lightgbm")
_OF_TREES = "XGB"  # codes of rules about boosted trees
ILL = frozenset({"IssuesFound", "Error"})
NOTHING = "inspected nothing: "
FOR_TREES = f"{NOTHING}for boosted trees only"
WORST = (Status.ERROR, Status.ISSUES_FOUND, Status.IN_PROGRESS, Status.NO_ISSUES_FOUND)


def job_row(record: JobRecord) -> dict[str, Json]:
    """One job: where it stands and its worst verdict with the rules that say so."""
    standing = verdicts(record)
    worst = _worst(standing)
    names = [v.rule for v in standing if v.status is worst and worst in WORST[:2]]
    return {
        "job": record.job,
        "status": record.status.value,
        "outcome": record.outcome or None,
        "verdict": str(worst) if worst else None,
        "rules": ", ".join(names) or None,
        "last_seen": when(record.last_seen),
    }


def _worst(standing: Sequence[Verdict]) -> Status | None:
    seen = {verdict.status for verdict in standing}
    issues = (Status.ISSUES_FOUND, Status.ERROR, Status.IN_PROGRESS)
    for status in (*issues, Status.NO_ISSUES_FOUND, Status.STOPPED):
        if status in seen:
            return status
    return None


def verdict_rows(record: JobRecord, findings: Iterable[Entry] = ()) -> list[dict[str, Json]]:
    """One row a rule or set: what found something first, symptoms right below their cause.

    With the job's findings the rows of verdicts with issues have remedies and confidence.
    """
    first: dict[str, Mapping[str, Json]] = {}
    for entry in findings:
        first.setdefault(str(entry.body["rule"]), entry.body)
    rows: list[dict[str, Json]] = [
        {
            "rule": verdict.rule,
            "code": verdict.code,
            "status": str(verdict.status) if verdict.evaluated else "not evaluated",
            "since_step": verdict.since_step if verdict.since_step >= 0 else None,
            "findings": verdict.findings,
            "inspected": verdict.inspected,
            "note": _note(verdict, str(record.manifest.get("framework", ""))) or None,
            "cause": verdict.cause or None,
            "severity": str(verdict.severity) if verdict.severity else None,
            "confidence": first.get(verdict.rule, {}).get("confidence"),
            "remedies": list(first.get(verdict.rule, {}).get("remedies", ())),
        }
        for verdict in verdicts(record)
    ]
    order = {"IssuesFound": 0, "Error": 1, "InProgress": 2, "not evaluated": 3}
    place = {row["rule"]: _place(row, order) for row in rows}
    return sorted(rows, key=lambda row: (place[row["cause"] or row["rule"]], *_within(row)))


def _note(verdict: Verdict, framework: str) -> str:
    """Return a verdict's note; if it had nothing to look at, what fits the run's framework."""
    name = framework.partition(" ")[0]
    if not verdict.note.startswith(NOTHING) or not name:
        return verdict.note
    if verdict.code.startswith(_OF_TREES):
        return verdict.note if name in _BOOSTED else FOR_TREES
    if name not in _PAGES or verdict.rule not in registry():
        return verdict.note
    return f"{NOTHING}not in this run of {name}; docs/{_PAGES[name]}.md says what can be recorded"


def _place(row: Mapping[str, Json], order: Mapping[str, int]) -> tuple[int, bool, int, str]:
    """Order of a group: what found something first, errors and the earliest first."""
    _, since, name = _within(row)
    status = str(row["status"])
    return order.get(status, 4), status == "IssuesFound" and row["severity"] != "error", since, name


def _within(row: Mapping[str, Json]) -> tuple[bool, int, str]:
    """Order within a group: the cause, then its symptoms."""
    since = row["since_step"]
    return bool(row["cause"]), -1 if since is None else int(since), str(row["rule"])


def problems(record: JobRecord) -> list[str]:
    """What in the job's configuration was not understood, a sentence each."""
    if not record.config:
        return []
    return [str(problem) for problem in JobConfig.from_json(record.config).problems]


def action(body: Mapping[str, Json]) -> str:
    """Say what was done, for which rule, and what became of it."""
    why = f": {body['reason']}" if body.get("reason") else ""
    return f"{body.get('kind')} for {body.get('rule')} {body.get('outcome')}{why}"


def finding_rows(entries: Iterable[Entry]) -> list[dict[str, Json]]:
    """Every recorded finding, in order of its step."""
    return [dict(entry.body) for entry in entries]


def rule_rows() -> list[dict[str, Json]]:
    """One row a rule in the catalogue; ``profile`` names those that run it by themselves."""
    runs = {profile: names(profile) for profile in PROFILES}
    chosen = {name: [p for p in PROFILES if name in runs[p]] for name in registry()}
    return [
        {
            "rule": name,
            "code": rule.meta.code,
            "severity": str(rule.meta.severity),
            "tier": str(rule.meta.tier),
            "profile": " ".join(chosen[name]) or "on request",
            "explains": list(rule.meta.explains),
            "what": runbook(name).partition("\n")[0].partition(": ")[2],
            "needs": ", ".join(f"{need.collection}.{need.stat}" for need in rule.meta.needs),
            "parameters": {p.name: p.default for p in parameters(rule)},
        }
        for name, rule in sorted(registry().items())
    ]


def has_issues(rows: Iterable[Mapping[str, Json]]) -> bool:
    """Whether any verdict should fail a pipeline."""
    return any(row["status"] in ILL for row in rows)
