"""Rules that run somewhere else: this engine keeps their books, and takes their word from answers.

A stand-in takes the place of such a rule in the registry: name, code, needs and parameters are
those of the rule, so that configuration, verdicts and messages know it. What the rule itself would
say of a step is asked beforehand and lies in ``Observation.memo[ANSWERS]``, by the rule's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.engine.findings import complete
from trainwarden.engine.runner import FINDINGS_PER_JOB, Entry, Result, Runner
from trainwarden.engine.specs import RuleSpec
from trainwarden.model import Finding, Json, Observation, Severity, Status, Verdict
from trainwarden.rules import CheckedRule

ANSWERS = "answers"
START: Json = {"$": "start"}  # the rule's first state is made where the rule runs
SILENT = "the answer of the function that runs it says nothing of this step"


@dataclass(frozen=True)
class Answer:
    """What a rule said of one step, or at the end.

    Attributes:
        state: Its state afterwards.
        seen: True if everything that it needs was there.
        findings: The worst first, complete but for the key and code.
        total: Findings there were; the others are only counted.
        error: Why it cannot go on; empty if it can.
    """

    state: Json = None
    seen: bool = False
    findings: tuple[Finding, ...] = ()
    total: int = 0
    error: str = ""


class StandIn(CheckedRule[Json]):
    """A rule that runs elsewhere.

    Attributes:
        waiting: True if the rule cares for time that passes without a step.
        finishing: True if the rule has something to say when the job has ended.
    """

    waiting: ClassVar[bool] = False
    finishing: ClassVar[bool] = False

    def start(self) -> Json:
        """It has not begun."""
        return START

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Never called: ``Elsewhere`` takes an answer instead."""
        raise NotImplementedError


class Elsewhere(Runner):
    """Keeps the books of a rule that runs somewhere else."""

    def __init__(self, spec: RuleSpec) -> None:
        super().__init__(spec)
        kind = type(self.rule)
        self.waits = issubclass(kind, StandIn) and kind.waiting
        self.finishes = issubclass(kind, StandIn) and kind.finishing

    def begin(self) -> Entry:
        """Return the entry before the first step, readable where nobody knows the rule."""
        meta = self.rule.meta
        return {"state": START, "code": meta.code, "loud": self._severity().value}

    def advance(
        self, before: Entry, obs: Observation, scalars: frozenset[str], tensors: frozenset[str]
    ) -> Result:
        """Take the answer for this step."""
        del scalars, tensors
        answers: Mapping[str, Answer] = obs.memo.get(ANSWERS, {})
        answer = answers.get(self.key)
        why = SILENT if answer is None else answer.error or self._miscounted(before, answer)
        if answer is None or why:
            return self.failed(before, why, obs.step)
        found = self._ours(answer)
        entry = {**before, "state": answer.state}
        if answer.seen:
            entry["inspected"] = before.get("inspected", 0) + 1
        if self.spec.every > 1:
            entry["looked"] = {**before.get("looked", {}), obs.mode.value: obs.step}
        return self._recorded(entry, found, answer.total) if answer.total else Result(entry)

    def take(self, before: Entry, answer: Answer | None) -> Result:
        """Take the answer to ``wait`` or ``finish``; none means that nobody had to be asked."""
        if answer is None:
            return Result(before)
        why = answer.error or self._miscounted(before, answer)
        if why:
            return self.failed(before, why, -1)
        entry = {**before, "state": answer.state}
        total = answer.total
        return self._recorded(entry, self._ours(answer), total) if total else Result(entry)

    def _miscounted(self, before: Entry, answer: Answer) -> str:
        """Say what is wrong with findings that are counted and not given, empty if nothing is."""
        full = before.get("findings", 0) >= FINDINGS_PER_JOB
        given = bool(answer.findings) or full or not answer.total
        return "" if given else f"it counted {answer.total} findings and gave none"

    def _ours(self, answer: Answer) -> tuple[Finding, ...]:
        return tuple(complete(finding, self.spec, self.rule) for finding in answer.findings)


def foreign(key: str, entry: Mapping[str, Json]) -> Verdict:
    """Return where a rule stands that this process does not know, by what was written of it."""
    loud = entry.get("severity") or entry.get("loud") or Severity.WARNING.value
    return Verdict(
        key,
        str(entry.get("code", "")),
        Status(entry.get("status", Status.IN_PROGRESS.value)),
        entry.get("since", -1),
        entry.get("findings", 0),
        entry.get("inspected", 0),
        entry.get("note", ""),
        severity=Severity(loud),
    )


def made(spec: RuleSpec) -> Runner:
    """Return what runs a spec: here, or elsewhere if its rule is a stand-in."""
    here = Runner(spec)
    return Elsewhere(spec) if isinstance(here.rule, StandIn) else here
