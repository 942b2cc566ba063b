"""One rule of a job: what is worked out once, and one guarded call a step.

The entry of a rule in the state holds ``state``, the rule's own, and beside it only what is not
as at the start: ``status``, ``since``, ``findings``, ``inspected``, ``note``, ``severity`` and,
with ``every``, ``looked``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from trainwarden.engine.findings import check, complete, crash
from trainwarden.engine.specs import RuleSpec
from trainwarden.model import Finding, Json, Observation, Rule, Severity, Status, Verdict
from trainwarden.rules import build

FINDINGS_PER_STEP = 2  # per rule; the worst two are kept, the rest counted
FINDINGS_PER_JOB = 20  # per rule; the rest counted
# verdicts that stand: their rules are not called any more
SETTLED_WORDS = frozenset(s.value for s in (Status.ERROR, Status.STOPPED, Status.NO_ISSUES_FOUND))
Entry = dict[str, Json]


class Result(NamedTuple):
    """What one rule brought at one step; ``entry`` is its part of the state."""

    entry: Entry
    findings: Sequence[Finding] = ()


def worded(exc: BaseException) -> str:
    """Return an exception in one line of at most 300 characters."""
    return " ".join(f"{type(exc).__name__}: {exc}".split())[:300]


class Runner:
    """Runs the rule of one spec.

    Raises:
        ConfigError: an unknown rule or a wrong parameter.
    """

    def __init__(self, spec: RuleSpec, rule: Rule[Any] | None = None) -> None:
        self.spec, self.key = spec, spec.key
        self.rule: Rule[Any] = rule or build(spec.name, spec.parameters, profile=spec.profile)
        self.waits = type(self.rule).wait is not Rule.wait  # most do not care for time
        self._each = spec.every == 1
        self.always = self._each and not (
            spec.start_step or spec.end_step is not None or spec.modes
        )
        needs = self.rule.meta.needs
        self._scalars = frozenset(str(n.collection) for n in needs if n.stat == "value")
        self._tensors = frozenset(str(n.collection) for n in needs if n.stat != "value")
        self._plain = type(self.rule).inspects is Rule.inspects

    def begin(self) -> Entry:
        """Return the entry before the first step."""
        return {"state": self.rule.start()}

    def is_settled(self, entry: Entry) -> bool:
        """Say whether the verdict stands and the rule is not called any more."""
        return entry.get("status") in SETTLED_WORDS

    def looks(self, entry: Entry, obs: Observation) -> bool:
        """Say whether the job wants the rule to look at this observation."""
        return self.always or (self.spec.covers(obs) and self._due(entry, obs))

    def _due(self, entry: Entry, obs: Observation) -> bool:
        """Say whether ``every`` steps have passed; a step back (a resume) is always due."""
        if self.spec.every == 1:
            return True
        last = entry.get("looked", {}).get(obs.mode.value)
        return last is None or not last <= obs.step < last + self.spec.every

    def advance(
        self, before: Entry, obs: Observation, scalars: frozenset[str], tensors: frozenset[str]
    ) -> tuple[Entry, Sequence[Finding]]:
        """Fold one observation, as ``Result``; the entry given is never changed.

        ``scalars`` and ``tensors`` are the collections that it holds.
        """
        state = before["state"]
        try:
            own, found = self.rule.advance(state, obs)
            if found:
                found = self._completed(found)
            if self._plain:
                seen = self._scalars <= scalars and self._tensors <= tensors
            else:
                seen = self.rule.inspects(obs)
        except Exception as exc:  # noqa: BLE001 - one broken rule must never hide the others
            grown = self._grown(before) if isinstance(exc, KeyError) else None
            if grown is not None:
                return self.advance(grown, obs, scalars, tensors)
            return self.crashed(before, exc, obs.step)
        if own is state and not seen and not found and self._each:
            return before, ()
        entry = before.copy()
        entry["state"] = own
        if seen:
            entry["inspected"] = before.get("inspected", 0) + 1
        if not self._each:
            entry["looked"] = {**before.get("looked", {}), obs.mode.value: obs.step}
        return self._recorded(entry, found, len(found)) if found else (entry, ())

    def _grown(self, before: Entry) -> Entry | None:
        """Return an entry of a release that kept less, completed; None if nothing is missing.

        A stack is updated while jobs run, and their rules go on with the states that they have.
        """
        state, start = before["state"], self.rule.start()
        if not (isinstance(state, dict) and isinstance(start, dict)) or not start.keys() - state:
            return None
        return {**before, "state": {**start, **state}}

    def apply(
        self, before: Entry, call: Callable[[Rule[Any], Json], tuple[Json, Sequence[Finding]]]
    ) -> Result:
        """Let the rule wait or finish."""
        try:
            own, found = call(self.rule, before["state"])
            findings = self._completed(found) if found else ()
        except Exception as exc:  # noqa: BLE001 - one broken rule must never hide the others
            return self.crashed(before, exc, -1)
        if own is before["state"] and not findings:
            return Result(before)
        entry = {**before, "state": own}
        return self._recorded(entry, findings, len(findings)) if findings else Result(entry)

    def _completed(self, found: Sequence[Finding]) -> Sequence[Finding]:
        done = [complete(finding, self.spec, self.rule) for finding in found]
        check(done[:FINDINGS_PER_STEP])
        return done

    def _recorded(self, entry: Entry, found: Sequence[Finding], total: int) -> Result:
        """Count all findings, keep the first few: a rule gives its worst first."""
        before = entry.get("findings", 0)
        kept = list(found[: min(FINDINGS_PER_STEP, max(0, FINDINGS_PER_JOB - before))])
        if kept and total > len(kept):
            others = total - len(kept)
            kept[0] = replace(kept[0], evidence={**kept[0].evidence, "others": others})
        entry["findings"] = before + total
        if "status" not in entry or entry["status"] == Status.IN_PROGRESS.value:
            entry["status"] = Status.ISSUES_FOUND.value
            entry["since"] = min(f.first_step for f in found)
            entry["note"] = found[0].message
            severity = found[0].severity
            if severity is not None and severity is not self._severity():
                entry["severity"] = severity.value
        return Result(entry, kept)

    def _severity(self) -> Severity:
        return self.spec.severity or self.rule.meta.severity

    def crashed(self, before: Entry, exc: Exception, at: int) -> Result:
        """Settle the rule as ``Error``: it is not called again."""
        return self.failed(before, worded(exc), at)

    def failed(self, before: Entry, what: str, at: int) -> Result:
        """Settle the rule as ``Error`` for this reason."""
        finding = crash(self.spec, what, at)
        entry = {**before, "status": Status.ERROR.value, "note": finding.message}
        return Result({**entry, "findings": before.get("findings", 0) + 1}, [finding])

    def settled(self, entry: Entry, status: Status) -> Entry:
        """Return the entry with a verdict that stands; says so if nothing was inspected."""
        note = entry.get("note", "")
        if not entry.get("inspected", 0):
            note = f"inspected nothing: {self.rule.meta.capture}"
        after = {**entry, "status": status.value}
        return {**after, "note": note} if note else after

    def verdict(self, entry: Mapping[str, Json]) -> Verdict:
        """Return where the rule stands."""
        severity = entry.get("severity")
        return Verdict(
            self.key,
            self.rule.meta.code,
            Status(entry.get("status", Status.IN_PROGRESS.value)),
            entry.get("since", -1),
            entry.get("findings", 0),
            entry.get("inspected", 0),
            entry.get("note", ""),
            severity=Severity(severity) if severity else self._severity(),
        )
