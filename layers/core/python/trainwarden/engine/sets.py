"""Sets of rules: the verdict of a set follows from those of its members, it has no state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainwarden.engine.specs import SetSpec
from trainwarden.model import Finding, Rule, Severity, Status, Verdict

SET_CODE = "SET001"
_LOUDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)


def standing(spec: SetSpec, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Return where a set stands.

    Args:
        spec: The set.
        verdicts: Of its members at least, by key.
    """
    members = [verdicts[key] for key in spec.members if key in verdicts]
    found = _found(members)
    inspected = sorted((m.inspected for m in members), reverse=True)
    enough = inspected[spec.at_least - 1] if spec.at_least <= len(inspected) else 0
    severity = spec.severity or max(
        (m.severity or Severity.WARNING for m in found or members),
        key=_LOUDER.index,
        default=Severity.WARNING,
    )
    blank = Verdict(spec.key, SET_CODE, inspected=enough, severity=severity)
    if len(found) >= spec.at_least:
        return replace(
            blank,
            status=Status.ISSUES_FOUND,
            since_step=found[spec.at_least - 1].since_step,
            findings=len(found),
            note=_told(spec, found, members),
        )
    status = _open(members)
    note = ""
    if status is Status.NO_ISSUES_FOUND and not enough:
        silent = [m for m in members if not m.inspected]
        note = f"inspected nothing: see {', '.join(m.rule for m in silent)}"
    return replace(blank, status=status, note=note)


def _found(members: Sequence[Verdict]) -> list[Verdict]:
    found = [m for m in members if m.status is Status.ISSUES_FOUND]
    return sorted(found, key=lambda m: (m.since_step, m.rule))


def _open(members: Sequence[Verdict]) -> Status:
    """Return the standing of a set whose condition does not hold."""
    seen = {m.status for m in members}
    if Status.IN_PROGRESS in seen:
        return Status.IN_PROGRESS
    if seen == {Status.ERROR}:
        return Status.ERROR
    return Status.STOPPED if Status.STOPPED in seen else Status.NO_ISSUES_FOUND


def _told(spec: SetSpec, found: Sequence[Verdict], members: Sequence[Verdict]) -> str:
    names = ", ".join(f"{m.rule} since step {m.since_step}" for m in found)
    asked = "any" if spec.at_least == 1 else f"at least {spec.at_least}"
    return f"{len(found)} of {len(members)} rules found issues ({asked} had to): {names}"


def finding(
    spec: SetSpec,
    verdict: Verdict,
    verdicts: Mapping[str, Verdict],
    rules: Mapping[str, Rule[Any]],
    step: int,
) -> Finding:
    """Return the evidence of a set whose condition holds: its members, and what to try."""
    found = _found([verdicts[key] for key in spec.members if key in verdicts])
    remedies = [remedy for m in found for remedy in rules[m.rule].meta.remedies[:2]]
    at = step if step >= 0 else max(m.since_step for m in found)
    return Finding(
        at,
        "",
        float(len(found)),
        float(spec.at_least),
        verdict.note,
        verdict.since_step,
        {"rules": {m.rule: m.since_step for m in found}},
        tuple(dict.fromkeys(remedies)),
        severity=verdict.severity,
        rule=spec.key,
        code=SET_CODE,
    )
