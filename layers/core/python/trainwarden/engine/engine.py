"""Folds many rules over a job's observations, each guarded from the others.

The state is JSON: rule key → what the rule remembers and where it stands. Folding is pure: the
state given is never changed, and a run cut anywhere, with JSON in between, gives the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trainwarden import grouping
from trainwarden.engine import sets as rule_sets
from trainwarden.engine.elsewhere import Answer, Elsewhere, made
from trainwarden.engine.findings import MAX_STATE_BYTES, plain, problem
from trainwarden.engine.runner import SETTLED_WORDS, Entry, Result, Runner
from trainwarden.engine.specs import Fold, RuleSpec, SetSpec
from trainwarden.errors import ConfigError
from trainwarden.model import Finding, Json, Observation, Rule, Status, Verdict
from trainwarden.rules import explained

NOBODY: Mapping[str, Answer] = MappingProxyType({})


class Engine:
    """Folds the rules of ``specs`` and the sets made of them.

    Raises:
        ConfigError: two specs with one key, an unknown rule, a wrong parameter, or a set of rules
            that do not run.
    """

    def __init__(self, specs: Iterable[RuleSpec], sets: Iterable[SetSpec] = ()) -> None:
        self.specs, self.sets = tuple(specs), tuple(sets)
        self.rules: dict[str, Rule[Any]] = {}
        self._runners: dict[str, Runner] = {}
        for spec in self.specs:
            if spec.key in self.rules:
                raise ConfigError("a key of its own for each rule", repr(spec.key))
            self._runners[spec.key] = runner = made(spec)
            self.rules[spec.key] = runner.rule
        # Rules that run somewhere else: their answers have to be there before they advance.
        self.elsewhere = tuple(r for r in self._runners.values() if isinstance(r, Elsewhere))
        for one in self.sets:
            strangers = [key for key in one.members if key not in self.rules]
            if one.key in self.rules or strangers:
                found = f"{one.key} of {', '.join(strangers) or 'a rule'}"
                raise ConfigError("a set of rules that run, under a key of its own", found)
        self._explained = explained()

    def start(self) -> Json:
        """Return the state before the first observation."""
        return {"rules": {key: runner.begin() for key, runner in self._runners.items()}}

    def advance(self, state: Json, obs: Observation) -> Fold:
        """Fold one observation into every rule that looks at it."""
        entries: Mapping[str, Entry] = state["rules"]
        after: dict[str, Entry] = {}
        told = []
        scalars, tensors = obs.present_scalars, obs.present_tensors
        for key, runner in self._runners.items():
            before = entries.get(key) or runner.begin()
            if "status" in before and before["status"] in SETTLED_WORDS:
                continue
            if not runner.always and not runner.looks(before, obs):
                continue
            entry, found = runner.advance(before, obs, scalars, tensors)
            if found:
                told.append((runner, before, Result(entry, found)))
            elif entry is not before:
                after[key] = entry
        state = {**state, "rules": {**entries, **after}} if after else state
        return self._folded(state, told, obs.step)

    def wait(self, state: Json, now: float, answers: Mapping[str, Answer] = NOBODY) -> Fold:
        """Let time pass without an observation; ``now`` in seconds since the epoch, UTC.

        ``answers`` are those of rules that run somewhere else, by key.
        """
        waiters = [runner for runner in self._runners.values() if runner.waits]
        results = []
        for runner, before in self._open(state, waiters):
            if isinstance(runner, Elsewhere):
                after = runner.take(before, answers.get(runner.key))
            else:
                after = runner.apply(before, lambda rule, own: rule.wait(own, now))
            if after.entry is not before:
                results.append((runner, before, after))
        return self._folded(state, results, -1)

    def finish(self, state: Json, *, stopped: bool, answers: Mapping[str, Answer] = NOBODY) -> Fold:
        """Settle every verdict: the job has ended, or was stopped. ``answers`` as for ``wait``."""
        results: list[tuple[Runner, Entry, Result]] = []
        for runner, before in self._open(state, self._runners.values()):
            if isinstance(runner, Elsewhere):
                after = runner.take(before, answers.get(runner.key))
            else:
                after = runner.apply(before, lambda rule, own: rule.finish(own))
            entry = after.entry
            if entry.get("status", Status.IN_PROGRESS.value) == Status.IN_PROGRESS.value:
                status = Status.STOPPED if stopped else Status.NO_ISSUES_FOUND
                entry = runner.settled(entry, status)
            results.append((runner, before, Result(entry, after.findings)))
        return self._folded(state, results, -1)

    def bounded(self, state: Json, *, step: int) -> Fold:
        """Settle each rule whose state no ledger would keep: too large, or not JSON at all.

        It costs as much as writing the state, so it belongs before a commit, not into each fold.
        """
        problems: dict[str, str] = {}
        for key, runner in self._runners.items():
            entry = state["rules"].get(key)
            if entry is not None and not runner.is_settled(entry):
                what = problem(entry["state"], "state", MAX_STATE_BYTES)
                if what:
                    problems[key] = what
        return self.give_up(state, problems, step=step)

    def give_up(self, state: Json, problems: Mapping[str, str], *, step: int) -> Fold:
        """Settle rules as ``Error`` for the given reasons, by key, and forget their states."""
        results = []
        for key, runner in self._runners.items():
            if key in problems:
                before = state["rules"][key]
                after = runner.failed({**before, "state": None}, problems[key], step)
                results.append((runner, before, after))
        return self._folded(state, results, step)

    def largest(self, state: Json) -> str:
        """Return the key of the rule with the largest state, empty if none keeps any."""
        sizes = {
            key: len(json.dumps(entry["state"], default=plain))
            for key, entry in state["rules"].items()
            if key in self.rules and entry["state"]
        }
        return max(sizes, key=lambda key: sizes[key], default="")

    def verdicts(self, state: Json) -> tuple[Verdict, ...]:
        """Return every verdict: the rules' in the order of the specs, then the sets'."""
        return tuple(self._standing(state["rules"]).values())

    def _open(self, state: Json, runners: Iterable[Runner]) -> Iterable[tuple[Runner, Entry]]:
        for runner in runners:
            before = state["rules"].get(runner.key) or runner.begin()
            if not runner.is_settled(before):
                yield runner, before

    def _folded(
        self, state: Json, results: Sequence[tuple[Runner, Entry, Result]], step: int
    ) -> Fold:
        if not results:
            return Fold(state)
        entries: dict[str, Entry] = dict(state["rules"])
        findings: list[Finding] = []
        turned: set[str] = set()
        for runner, before, (entry, found) in results:
            entries[runner.key] = entry
            findings += found
            if entry.get("status") != before.get("status"):
                turned.add(runner.key)
        after = {**state, "rules": entries}
        if not turned:
            return Fold(after, tuple(findings))
        standing = self._standing(entries)
        findings += self._turned_sets(state, standing, turned, step)
        changed = [verdict for key, verdict in standing.items() if key in turned]
        return Fold(after, tuple(findings), tuple(sorted(changed, key=lambda v: bool(v.cause))))

    def _turned_sets(
        self, state: Json, standing: Mapping[str, Verdict], turned: set[str], step: int
    ) -> Iterable[Finding]:
        """Add the sets whose verdict is new to ``turned``; yield the evidence of their issues."""
        earlier = self._standing(state["rules"]) if self.sets else {}
        for one in self.sets:
            now = standing[one.key]
            if now.status is not earlier[one.key].status:
                turned.add(one.key)
                if now.status is Status.ISSUES_FOUND:
                    yield rule_sets.finding(one, now, standing, self.rules, step)

    def _standing(self, entries: Mapping[str, Entry]) -> dict[str, Verdict]:
        """Return every verdict by key, each symptom with its cause."""
        found = {
            key: runner.verdict(entries.get(key) or {}) for key, runner in self._runners.items()
        }
        for one in self.sets:
            found[one.key] = rule_sets.standing(one, found)
        issues = [verdict for verdict in found.values() if verdict.status is Status.ISSUES_FOUND]
        if len(issues) > 1:
            ill = [self._ill(verdict, found) for verdict in issues]
            for symptom, cause in grouping.causes(ill, self._explained).items():
                found[symptom] = replace(found[symptom], cause=cause)
        return found

    def _ill(self, verdict: Verdict, found: Mapping[str, Verdict]) -> grouping.Standing:
        key = verdict.rule
        if key in self._runners:
            return grouping.Standing(key, self.rules[key].meta.name, verdict.since_step)
        members = next(one.members for one in self.sets if one.key == key)
        ill = [m for m in members if found[m].status is Status.ISSUES_FOUND]
        return grouping.Standing(key, "", verdict.since_step, tuple(ill))


def replay(
    specs: Iterable[RuleSpec], observations: Iterable[Observation], sets: Iterable[SetSpec] = ()
) -> Fold:
    """Fold a whole recorded run and settle its verdicts; ``changed`` holds every verdict."""
    engine = Engine(specs, sets)
    state = engine.start()
    findings: list[Finding] = []
    for obs in observations:
        fold = engine.advance(state, obs)
        state = fold.state
        findings += fold.findings
    last = engine.finish(state, stopped=False)
    return Fold(last.state, (*findings, *last.findings), engine.verdicts(last.state))
