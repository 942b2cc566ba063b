"""Folds many rules over a job's observations, each guarded from the others.

The state is JSON: rule key → what the rule remembers and where it stands. Folding is pure: the
state given is never changed, and a run cut anywhere, with JSON in between, gives the same result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trainwarden.errors import BadInputError, ConfigError
from trainwarden.model import Finding, Json, Mode, Observation, Rule, Severity, Status, Verdict
from trainwarden.rules import DEFAULT, build

FINDINGS_PER_STEP = 2  # per rule; the worst two are kept, the rest counted
FINDINGS_PER_JOB = 20  # per rule; the rest counted
MAX_STATE_BYTES = 256 * 1024  # JSON of one rule's state: all rules' share one item of 400 KB
MAX_EVIDENCE_BYTES = 32 * 1024  # JSON; a finding is an item and part of events of 256 KB
MAX_MESSAGE_CHARS = 2_000
CRASH_CODE = "ENG001"
_MAX_FLOAT = 1.7976931348623157e308
_SETTLED = frozenset({Status.ERROR, Status.STOPPED, Status.NO_ISSUES_FOUND})


@dataclass(frozen=True)
class RuleSpec:
    """A rule as a job asks for it.

    Attributes:
        key: Name of this rule in the job; several specs may share ``name``, never ``key``.
        name: Name of the rule in the registry.
        parameters: Parameters of the rule; strings are cast.
        start_step: First step it looks at.
        end_step: Last step it looks at; None means no end.
        modes: Modes it looks at; empty means all.
        severity: Overrides the rule's own.
        actions: What to do about findings: ``stop``, ``notify``, ``none``, ``email:…``, ``sms:…``;
            empty leaves it to the deployment. Read by ``policy`` only.
        every: Looks again only this many steps after it last looked in the same mode.
        profile: ``default`` for our meaning and limits, ``sagemaker`` for SageMaker's.
    """

    key: str
    name: str
    parameters: Mapping[str, Json] = field(default_factory=dict)
    start_step: int = 0
    end_step: int | None = None
    modes: tuple[Mode, ...] = ()
    severity: Severity | None = None
    actions: tuple[str, ...] = ()
    every: int = 1
    profile: str = DEFAULT

    def covers(self, obs: Observation) -> bool:
        """Say whether the rule looks at this observation."""
        return (
            obs.step >= self.start_step
            and (self.end_step is None or obs.step <= self.end_step)
            and (not self.modes or obs.mode in self.modes)
        )


class Fold(NamedTuple):
    """What one fold brought: ``changed`` holds the verdicts whose status is new."""

    state: Json
    findings: tuple[Finding, ...] = ()
    changed: tuple[Verdict, ...] = ()


class _Result(NamedTuple):
    """What one rule brought at one step; ``entry`` is its part of the state."""

    entry: dict[str, Json]
    findings: Sequence[Finding] = ()


_Step = Callable[[Rule[Any], Json], tuple[Json, Sequence[Finding]]]


class Engine:
    """Folds the rules of ``specs``.

    Raises:
        ConfigError: two specs with one key, an unknown rule or a wrong parameter.
    """

    def __init__(self, specs: Iterable[RuleSpec]) -> None:
        self.specs = tuple(specs)
        self.rules: dict[str, Rule[Any]] = {}
        for spec in self.specs:
            if spec.key in self.rules:
                raise ConfigError("a key of its own for each rule", repr(spec.key))
            self.rules[spec.key] = build(spec.name, spec.parameters, profile=spec.profile)
        # most rules do not care for time without a step
        self._waiters = {k for k, r in self.rules.items() if type(r).wait is not Rule.wait}

    def start(self) -> Json:
        """Return the state before the first observation."""
        return {"rules": {spec.key: self._entry(spec) for spec in self.specs}}

    def _entry(self, spec: RuleSpec) -> dict[str, Json]:
        return {
            "state": self.rules[spec.key].start(),
            "status": Status.IN_PROGRESS.value,
            "since": -1,
            "findings": 0,
            "inspected": 0,
            "note": "",
        }

    def advance(self, state: Json, obs: Observation) -> Fold:
        """Fold one observation into every rule that looks at it."""

        def step(rule: Rule[Any], own: Json) -> tuple[Json, Sequence[Finding]]:
            return rule.advance(own, obs)

        entries = state["rules"]
        specs = [s for s in self.specs if s.covers(obs) and _due(s, entries.get(s.key), obs)]
        return self._fold(state, specs, step, obs=obs)

    def wait(self, state: Json, now: float) -> Fold:
        """Let time pass without an observation; ``now`` in seconds since the epoch, UTC."""

        def step(rule: Rule[Any], own: Json) -> tuple[Json, Sequence[Finding]]:
            return rule.wait(own, now)

        return self._fold(state, [s for s in self.specs if s.key in self._waiters], step)

    def finish(self, state: Json, *, stopped: bool) -> Fold:
        """Settle every verdict: the job has ended, or was stopped."""

        def step(rule: Rule[Any], own: Json) -> tuple[Json, Sequence[Finding]]:
            return rule.finish(own)

        fold = self._fold(state, self.specs, step)
        entries, changed = dict(fold.state["rules"]), list(fold.changed)
        for spec in self.specs:
            entry = entries[spec.key]
            if entry["status"] != Status.IN_PROGRESS.value:
                continue
            status = Status.STOPPED if stopped else Status.NO_ISSUES_FOUND
            note = entry["note"]
            if not entry["inspected"]:
                note = f"inspected nothing: {self.rules[spec.key].meta.capture}"
            entries[spec.key] = {**entry, "status": status.value, "note": note}
            changed.append(self._verdict(spec, entries[spec.key]))
        return Fold({**fold.state, "rules": entries}, fold.findings, tuple(changed))

    def bounded(self, state: Json, *, step: int) -> Fold:
        """Settle each rule whose state no ledger would keep: too large, or not JSON at all.

        It costs as much as writing the state, so it belongs before a commit, not into each fold.
        """
        problems: dict[str, str] = {}
        for spec in self.specs:
            entry = state["rules"].get(spec.key)
            if entry is not None and entry["status"] not in _SETTLED:
                problem = _problem(entry["state"], "state", MAX_STATE_BYTES)
                if problem:
                    problems[spec.key] = problem
        return self.give_up(state, problems, step=step)

    def give_up(self, state: Json, problems: Mapping[str, str], *, step: int) -> Fold:
        """Settle rules as ``Error`` for the given reasons, by key, and forget their states."""
        entries: dict[str, Json] = dict(state["rules"])
        findings: list[Finding] = []
        changed: list[Verdict] = []
        for spec in self.specs:
            if spec.key not in problems:
                continue
            what = problems[spec.key]
            entry, new = _failed(spec, {**entries[spec.key], "state": None}, what, step)
            entries[spec.key] = entry
            findings += new
            changed.append(self._verdict(spec, entry))
        return Fold({**state, "rules": entries}, tuple(findings), tuple(changed))

    def largest(self, state: Json) -> str:
        """Return the key of the rule with the largest state, empty if none keeps any."""
        sizes = {
            key: len(json.dumps(entry["state"], default=_plain))
            for key, entry in state["rules"].items()
            if key in self.rules and entry["state"]
        }
        return max(sizes, key=lambda key: sizes[key], default="")

    def verdicts(self, state: Json) -> tuple[Verdict, ...]:
        """Return every rule's verdict, in the order of the specs."""
        entries = state["rules"]
        return tuple(
            self._verdict(spec, entries.get(spec.key) or self._entry(spec)) for spec in self.specs
        )

    def _fold(
        self,
        state: Json,
        specs: Sequence[RuleSpec],
        step: _Step,
        *,
        obs: Observation | None = None,
    ) -> Fold:
        entries: dict[str, Json] = dict(state["rules"])
        findings: list[Finding] = []
        changed: list[Verdict] = []
        for spec in specs:
            before = entries.get(spec.key) or self._entry(spec)
            if before["status"] in _SETTLED:
                continue
            entry, new = self._guarded(spec, before, step, obs)
            entries[spec.key] = entry
            findings += new
            if entry["status"] != before["status"]:
                changed.append(self._verdict(spec, entry))
        return Fold({**state, "rules": entries}, tuple(findings), tuple(changed))

    def _guarded(
        self, spec: RuleSpec, before: dict[str, Json], step: _Step, obs: Observation | None
    ) -> _Result:
        rule = self.rules[spec.key]
        try:
            own, found = step(rule, before["state"])
            seen = obs is not None and rule.inspects(obs)
            complete = [_complete(f, spec, rule) for f in found]
            _check(complete[:FINDINGS_PER_STEP])
        except Exception as exc:  # noqa: BLE001 - one broken rule must never hide the others
            return _crashed(spec, before, exc, obs)
        entry = {**before, "state": own, "inspected": before["inspected"] + seen}
        if spec.every > 1 and obs is not None:
            entry["looked"] = {**before.get("looked", {}), obs.mode.value: obs.step}
        return _recorded(entry, complete) if complete else _Result(entry)

    def _verdict(self, spec: RuleSpec, entry: Mapping[str, Json]) -> Verdict:
        return Verdict(
            spec.key,
            self.rules[spec.key].meta.code,
            Status(entry["status"]),
            entry["since"],
            entry["findings"],
            entry["inspected"],
            entry["note"],
        )


def replay(specs: Iterable[RuleSpec], observations: Iterable[Observation]) -> Fold:
    """Fold a whole recorded run and settle its verdicts; ``changed`` holds every verdict."""
    engine = Engine(specs)
    state = engine.start()
    findings: list[Finding] = []
    for obs in observations:
        fold = engine.advance(state, obs)
        state = fold.state
        findings += fold.findings
    last = engine.finish(state, stopped=False)
    return Fold(last.state, (*findings, *last.findings), engine.verdicts(last.state))


def _due(spec: RuleSpec, entry: Mapping[str, Json] | None, obs: Observation) -> bool:
    """Say whether ``every`` steps have passed; a step back (a resume) is always due."""
    if spec.every <= 1 or entry is None:
        return True
    last = entry.get("looked", {}).get(obs.mode.value)
    return last is None or not last <= obs.step < last + spec.every


def _complete(found: Finding, spec: RuleSpec, rule: Rule[Any]) -> Finding:
    """Fill in what the rule leaves to the engine; what leaves here is strict JSON."""
    meta = rule.meta
    return replace(
        found,
        rule=spec.key,
        code=meta.code,
        severity=spec.severity or found.severity or meta.severity,
        message=found.message[:MAX_MESSAGE_CHARS],
        remedies=found.remedies or meta.remedies,
        value=_finite(found.value),
        limit=_finite(found.limit),
    )


def _recorded(entry: dict[str, Json], found: Sequence[Finding]) -> _Result:
    """Count all findings, keep the first few: a rule gives its worst first."""
    room = max(0, FINDINGS_PER_JOB - entry["findings"])
    kept = list(found[: min(FINDINGS_PER_STEP, room)])
    if kept and len(found) > len(kept):
        others = len(found) - len(kept)
        kept[0] = replace(kept[0], evidence={**kept[0].evidence, "others": others})
    entry["findings"] += len(found)
    if entry["status"] == Status.IN_PROGRESS.value:
        entry["status"] = Status.ISSUES_FOUND.value
        entry["since"] = min(f.first_step for f in found)
        entry["note"] = found[0].message
    return _Result(entry, kept)


def _finite(value: float) -> float:
    """JSON has no NaN and no infinity: NaN becomes 0, ±inf the largest float64."""
    if math.isnan(value):
        return 0.0
    return max(-_MAX_FLOAT, min(_MAX_FLOAT, float(value)))


def _crashed(
    spec: RuleSpec, before: Mapping[str, Json], exc: Exception, obs: Observation | None
) -> _Result:
    what = f"{type(exc).__name__}: {exc}"[:300]
    return _failed(spec, before, what, obs.step if obs is not None else -1)


def _failed(spec: RuleSpec, before: Mapping[str, Json], what: str, at: int) -> _Result:
    message = f"the rule {spec.name} itself crashed and is not called again: {what}"
    finding = Finding(
        at,
        "",
        0.0,
        0.0,
        message,
        at,
        remedies=("Report this with the run's folder: it is a defect of the rule, not the job.",),
        severity=Severity.WARNING,
        rule=spec.key,
        code=CRASH_CODE,
    )
    entry = {**before, "status": Status.ERROR.value, "note": message}
    return _Result({**entry, "findings": before["findings"] + 1}, [finding])


def _check(findings: Sequence[Finding]) -> None:
    """Refuse what cannot be stored.

    Raises:
        BadInputError: evidence that is no JSON, or too much of it.
    """
    for finding in findings:
        problem = _problem(finding.evidence, "evidence", MAX_EVIDENCE_BYTES)
        if problem:
            raise BadInputError("evidence of a finding as JSON", problem)


def _problem(value: Json, what: str, most: int) -> str:
    """Return why JSON-shaped data cannot be kept, empty if it can."""
    try:
        size = len(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        return f"its {what} is not JSON ({error})"[:300]
    return f"its {what} grew beyond {most} bytes of JSON ({size})" if size > most else ""


def _plain(value: object) -> Json:
    """Numpy's numbers are stored as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"Object of type {type(value).__name__}")
