"""Root causes and sets of rules in the fold: what is told, in which order, with which cause."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.unit.rules.runs import Script
from trainwarden.engine import SET_CODE, Engine, RuleSpec, SetSpec
from trainwarden.errors import ConfigError
from trainwarden.model import (
    Finding,
    Json,
    Observation,
    RuleMeta,
    Severity,
    Status,
    Tier,
    Verdict,
)
from trainwarden.rules import registry
from trainwarden.rules._parameters import CheckedRule, param


class FiresAt(CheckedRule[Json]):
    """Finds something at one step, and from the step before."""

    def start(self) -> Json:
        return 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        at = getattr(self, "at", -1)
        found = [Finding(obs.step, "", 1.0, 0.0, "found", max(0, at - 1))] if obs.step == at else []
        return state, found


def meta(name: str, code: str, *explains: str) -> RuleMeta:
    return RuleMeta(
        code, name, Severity.WARNING, Tier.CRITICAL, (), (f"{name}?",), "watch", explains=explains
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause(FiresAt):
    meta: ClassVar[RuleMeta] = meta("Cause", "USR901", "Symptom")
    at: int = param(-1, "Step.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom(FiresAt):
    meta: ClassVar[RuleMeta] = meta("Symptom", "USR902")
    at: int = param(-1, "Step.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Other(FiresAt):
    meta: ClassVar[RuleMeta] = meta("Other", "USR903")
    at: int = param(-1, "Step.")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {cls.meta.name: cls for cls in (Cause, Symptom, Other)}
    monkeypatch.setattr("trainwarden.rules.registry", lambda: {**registry(), **more})


def run(one: Engine, steps: int = 6) -> tuple[Json, list[list[Verdict]], list[Finding]]:
    state = one.start()
    told: list[list[Verdict]] = []
    found: list[Finding] = []
    for step in range(steps):
        fold = one.advance(state, Script().step(step))
        state = json.loads(json.dumps(fold.state))
        told.append(list(fold.changed))
        found += fold.findings
    return state, [changed for changed in told if changed], found


def specs(**at: int) -> list[RuleSpec]:
    return [RuleSpec(name.lower(), name, {"at": step}) for name, step in at.items()]


def test_within_one_fold_the_cause_comes_first() -> None:
    _, (told,), _ = run(Engine(specs(Symptom=3, Cause=3)))
    assert [(v.rule, v.cause) for v in told] == [("cause", ""), ("symptom", "cause")]


@pytest.mark.parametrize("order", [("Cause", "Symptom"), ("Symptom", "Cause")])
@pytest.mark.parametrize("later", ["Cause", "Symptom"])
def test_whichever_comes_first_the_group_is_the_same_in_the_end(
    order: tuple[str, ...], later: str
) -> None:
    at = {name: 4 if name == later else 1 for name in order}
    one = Engine(specs(**at))
    state, told, _ = run(one)
    assert {v.rule: v.cause for v in one.verdicts(state)} == {"cause": "", "symptom": "cause"}
    assert [v.cause for changed in told for v in changed] == (
        ["", ""] if later == "Cause" else ["", "cause"]
    )


def test_a_verdict_without_issues_is_nobodys_symptom() -> None:
    one = Engine(specs(Cause=1, Symptom=-1))
    state, _, _ = run(one)
    assert [v.cause for v in one.verdicts(one.finish(state, stopped=False).state)] == ["", ""]


def test_a_verdict_says_how_severe_it_is() -> None:
    loud = RuleSpec("loud", "Other", severity=Severity.ERROR)
    one = Engine([*specs(Other=1), loud])
    assert [v.severity for v in one.verdicts(one.start())] == [Severity.WARNING, Severity.ERROR]


class TestSets:
    @pytest.mark.parametrize(("at_least", "since", "step"), [(1, 0, 1), (2, 2, 3), (3, 4, 5)])
    def test_a_set_finds_issues_once_enough_of_its_rules_did(
        self, at_least: int, since: int, step: int
    ) -> None:
        rules = specs(Cause=1, Symptom=3, Other=5)
        one = Engine(rules, [SetSpec("both", ("cause", "symptom", "other"), at_least)])
        state, told, found = run(one)
        turned = [v for changed in told for v in changed if v.rule == "both"]
        assert [(v.status, v.since_step) for v in turned] == [(Status.ISSUES_FOUND, since)]
        (finding,) = [f for f in found if f.rule == "both"]
        assert (finding.step, finding.code, finding.value) == (step, SET_CODE, at_least)
        assert finding.message.startswith(f"{at_least} of 3 rules found issues")
        assert "Cause?" in finding.remedies
        assert one.verdicts(state)[-1].rule == "both"

    def test_its_members_are_told_as_part_of_it_and_after_it(self) -> None:
        one = Engine(specs(Other=2, Symptom=4), [SetSpec("any", ("other", "symptom"))])
        state, (first, second), _ = run(one)
        assert [(v.rule, v.cause) for v in first] == [("any", ""), ("other", "any")]
        assert [(v.rule, v.cause) for v in second] == [("symptom", "any")]
        assert one.verdicts(state)[-1].findings == 2

    def test_without_enough_it_ends_as_its_members_do(self) -> None:
        one = Engine(specs(Other=2, Symptom=-1), [SetSpec("all", ("other", "symptom"), 2)])
        state, told, _ = run(one)
        assert [v.rule for changed in told for v in changed] == ["other"]
        for stopped, status in ((False, Status.NO_ISSUES_FOUND), (True, Status.STOPPED)):
            fold = one.finish(state, stopped=stopped)
            assert [(v.rule, v.status) for v in fold.changed] == [
                ("symptom", status),
                ("all", status),
            ]

    def test_a_set_whose_rules_saw_nothing_was_not_evaluated(self) -> None:
        one = Engine([RuleSpec("o", "Overfit")], [SetSpec("s", ("o",))])
        (_, verdict) = one.verdicts(one.finish(one.start(), stopped=False).state)
        assert not verdict.evaluated
        assert verdict.note == "inspected nothing: see o"

    def test_the_loudest_of_its_rules_says_how_severe_it_is(self) -> None:
        loud = RuleSpec("loud", "Other", {"at": 2}, severity=Severity.ERROR)
        quiet = SetSpec("quiet", ("loud", "symptom"), severity=Severity.INFO)
        one = Engine([loud, *specs(Symptom=1)], [SetSpec("s", ("loud", "symptom"), 2), quiet])
        state, _, found = run(one)
        assert {f.rule: f.severity for f in found}["s"] is Severity.ERROR
        assert one.verdicts(state)[-1].severity is Severity.INFO

    @pytest.mark.parametrize("wrong", [SetSpec("s", ("nobody",)), SetSpec("other", ("other",))])
    def test_a_set_of_rules_that_do_not_run_or_with_a_rules_key_is_refused(
        self, wrong: SetSpec
    ) -> None:
        with pytest.raises(ConfigError, match="a set of rules that run"):
            Engine(specs(Other=1), [wrong])


def test_what_brings_nothing_leaves_the_state_as_it_is() -> None:
    one = Engine([RuleSpec("o", "Overfit")])
    state = one.start()
    assert one.advance(state, Script().step(0)).state["rules"] == state["rules"]
