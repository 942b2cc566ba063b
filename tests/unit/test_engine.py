from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rules.runs import INF, NAN, Script, losses, matrices
from trainwarden.engine import MAX_STATE_BYTES, Engine, RuleSpec, replay
from trainwarden.engine.findings import complete
from trainwarden.engine.runner import Runner
from trainwarden.errors import ConfigError
from trainwarden.model import (
    Finding,
    Json,
    Mode,
    Observation,
    Rule,
    RuleMeta,
    Severity,
    Status,
    Tier,
)
from trainwarden.rules import names, registry
from trainwarden.rules._parameters import CheckedRule, param


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted(CheckedRule[Json]):
    """Finds, crashes and waits as its parameters say; the state counts the steps seen."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "USR901",
        "Scripted",
        Severity.WARNING,
        Tier.EVIDENCE,
        (),
        ("try this",),
        "say watch(…)",
    )
    per_step: int = param(0, "Findings at each step.")
    crash_at: int = param(-1, "Step to crash at.")
    value: float = param(1.0, "Value of each finding.")
    told_after: float = param(1e18, "Silence that is told.")
    at_end: bool = param(False, "Finds something at the end.")
    blind: bool = param(False, "Inspects nothing.")

    def start(self) -> Json:
        return {"seen": 0}

    def inspects(self, obs: Observation) -> bool:
        del obs
        return not self.blind

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        if obs.step == self.crash_at:
            raise ZeroDivisionError("the moon is full")
        found = [
            Finding(obs.step, f"t{i}", self.value, 0.0, f"finding {i}", obs.step - 1)
            for i in range(self.per_step)
        ]
        return {"seen": state["seen"] + 1}, found

    def wait(self, state: Json, now: float) -> tuple[Json, Sequence[Finding]]:
        return state, [Finding(0, "", 1.0, 0.0, "silence", 0)] if now > self.told_after else []

    def finish(self, state: Json) -> tuple[Json, Sequence[Finding]]:
        return state, [Finding(0, "", 1.0, 0.0, "late", 0)] if self.at_end else []


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**registry(), "Scripted": Scripted}
    monkeypatch.setattr("trainwarden.rules.registry", lambda: known)


def spec(key: str = "s", **parameters: Any) -> RuleSpec:
    return RuleSpec(key, "Scripted", parameters)


def run_through(one: Engine, run: Sequence[Observation]) -> tuple[Json, list[Finding]]:
    state = one.start()
    found: list[Finding] = []
    for obs in run:
        fold = one.advance(state, obs)
        state = json.loads(json.dumps(fold.state, allow_nan=False))
        assert state == fold.state
        found += fold.findings
    return state, found


def steps(count: int) -> list[Observation]:
    return [Script().step(i) for i in range(count)]


def test_findings_leave_complete() -> None:
    _, (found,) = run_through(Engine([spec("mine", per_step=1)]), steps(1))
    assert (found.rule, found.code, found.severity) == ("mine", "USR901", Severity.WARNING)
    assert found.remedies == ("try this",)


def test_the_severity_of_the_job_wins() -> None:
    one = RuleSpec("s", "Scripted", {"per_step": 1}, severity=Severity.ERROR)
    assert run_through(Engine([one]), steps(1))[1][0].severity is Severity.ERROR


@pytest.mark.parametrize(("value", "sent"), [(NAN, 0.0), (INF, 1.7976931348623157e308)])
def test_what_leaves_is_strict_json(value: float, sent: float) -> None:
    # built directly: parameters are finite, what a rule computes may not be
    found = complete(Finding(0, "", value, -value, "m", 0), spec(), Scripted())
    assert found.value == sent
    assert found.limit == -sent
    json.dumps([found.value, found.limit], allow_nan=False)


def test_the_first_finding_turns_the_verdict_and_says_so_once() -> None:
    one = Engine([spec(per_step=1)])
    first = one.advance(one.start(), steps(8)[7])
    (verdict,) = first.changed
    assert verdict.status is Status.ISSUES_FOUND
    assert verdict.since_step == 6
    assert verdict.note == "finding 0"
    assert one.advance(first.state, steps(9)[8]).changed == ()


def test_at_most_two_findings_a_step_and_the_rest_is_counted() -> None:
    one = Engine([spec(per_step=5)])
    fold = one.advance(one.start(), steps(1)[0])
    assert [f.tensor for f in fold.findings] == ["t0", "t1"]
    assert fold.findings[0].evidence == {"others": 3}
    assert fold.changed[0].findings == 5


def test_at_most_twenty_findings_a_job_and_the_rest_is_counted() -> None:
    one = Engine([spec(per_step=1)])
    state, found = run_through(one, steps(50))
    assert len(found) == 20
    assert one.verdicts(state)[0].findings == 50


class TestCrash:
    def test_is_one_finding_and_an_error_of_that_rule_alone(self) -> None:
        one = Engine([spec("bad", crash_at=2, per_step=1), spec("good", per_step=1)])
        state, found = run_through(one, steps(5))
        crashes = [f for f in found if f.code == "ENG001"]
        assert [(f.rule, f.step) for f in crashes] == [("bad", 2)]
        assert "ZeroDivisionError: the moon is full" in crashes[0].message
        bad, good = one.verdicts(state)
        assert bad.status is Status.ERROR
        assert good.status is Status.ISSUES_FOUND
        assert good.findings == 5

    def test_is_never_called_again(self) -> None:
        one = Engine([spec(crash_at=2)])
        state, _ = run_through(one, steps(5))
        assert state["rules"]["s"]["state"] == {"seen": 2}
        assert one.finish(state, stopped=False).changed == ()

    def test_of_a_state_nobody_understands(self) -> None:
        one = Engine([spec()])
        state = one.start()
        state["rules"]["s"]["state"] = "garbage"
        assert one.advance(state, steps(1)[0]).changed[0].status is Status.ERROR

    def test_system_exit_is_no_crash_of_a_rule(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def leave(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Scripted, "advance", leave)
        one = Engine([spec()])
        with pytest.raises(KeyboardInterrupt):
            one.advance(one.start(), steps(1)[0])


class TestFinish:
    def test_without_findings_there_are_no_issues(self) -> None:
        one = Engine([spec()])
        state, _ = run_through(one, steps(3))
        (verdict,) = one.finish(state, stopped=False).changed
        assert verdict.status is Status.NO_ISSUES_FOUND
        assert verdict.inspected == 3
        assert verdict.evaluated
        assert verdict.note == ""

    def test_a_rule_that_saw_nothing_says_what_to_capture(self) -> None:
        one = Engine([spec(blind=True)])
        state, _ = run_through(one, steps(3))
        (verdict,) = one.finish(state, stopped=False).changed
        assert verdict.note == "inspected nothing: say watch(…)"
        assert not verdict.evaluated

    def test_a_stopped_job_leaves_open_verdicts_stopped(self) -> None:
        one = Engine([spec("open"), spec("found", per_step=1)])
        state, _ = run_through(one, steps(3))
        fold = one.finish(state, stopped=True)
        assert [v.status for v in one.verdicts(fold.state)] == [
            Status.STOPPED,
            Status.ISSUES_FOUND,
        ]

    def test_may_still_find_something(self) -> None:
        one = Engine([spec(at_end=True)])
        fold = one.finish(one.start(), stopped=False)
        assert [f.message for f in fold.findings] == ["late"]
        assert fold.changed[0].status is Status.ISSUES_FOUND

    def test_settled_rules_see_no_more_steps(self) -> None:
        one = Engine([spec(per_step=1)])
        settled = one.finish(Engine([spec()]).start(), stopped=False).state
        fold = one.advance(settled, steps(1)[0])
        assert fold.findings == ()
        assert fold.state == settled


def test_waiting_asks_only_rules_that_care() -> None:
    one = Engine([spec(told_after=10.0), RuleSpec("o", "Overfit")])
    assert one.wait(one.start(), 5.0).findings == ()
    fold = one.wait(one.start(), 11.0)
    assert [f.message for f in fold.findings] == ["silence"]
    assert fold.changed[0].status is Status.ISSUES_FOUND
    assert fold.changed[0].inspected == 0


@pytest.mark.parametrize(
    ("limits", "seen"),
    [
        ({}, 10),
        ({"start_step": 4}, 6),
        ({"end_step": 3}, 4),
        ({"start_step": 2, "end_step": 5}, 4),
        ({"modes": (Mode.TRAIN,)}, 5),
        ({"modes": (Mode.EVAL, Mode.TRAIN)}, 10),
    ],
)
def test_a_rule_looks_only_where_it_is_told_to(limits: dict[str, Any], seen: int) -> None:
    run = [Script().step(i, mode=Mode.TRAIN if i % 2 else Mode.EVAL) for i in range(10)]
    state, _ = run_through(Engine([RuleSpec("s", "Scripted", **limits)]), run)
    assert state["rules"]["s"]["state"] == {"seen": seen}


def test_two_specs_with_one_key_an_unknown_rule_and_a_wrong_parameter_are_refused() -> None:
    with pytest.raises(ConfigError, match="key of its own"):
        Engine([spec(), spec()])
    with pytest.raises(ConfigError, match="did you mean Overfit"):
        Engine([RuleSpec("s", "Overfitting")])
    with pytest.raises(ConfigError, match="patience"):
        Engine([RuleSpec("s", "Overfit", {"patience": "-1"})])


def test_one_rule_may_run_twice_with_other_parameters() -> None:
    one = Engine([RuleSpec("soft", "Overfit"), RuleSpec("hard", "Overfit", {"patience": "9"})])
    assert [v.rule for v in one.verdicts(one.start())] == ["soft", "hard"]


def test_a_rule_added_while_the_job_runs_starts_then() -> None:
    state, _ = run_through(Engine([spec("a")]), steps(3))
    both = Engine([spec("a"), spec("b")])
    fold = both.advance(state, steps(4)[3])
    assert [v.inspected for v in both.verdicts(fold.state)] == [4, 1]


def test_a_state_of_a_release_that_kept_less_is_completed() -> None:
    one = Engine([spec("a")])
    state = one.start()
    del state["rules"]["a"]["state"]["seen"]
    fold = one.advance(state, steps(1)[0])
    assert fold.state["rules"]["a"]["state"] == {"seen": 1}
    assert one.verdicts(fold.state)[0].status is Status.IN_PROGRESS


def test_a_key_that_no_release_kept_is_an_error_of_the_rule() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wrong(Scripted):
        def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
            del obs
            return state["other"], ()

    runner = Runner(RuleSpec("wrong", "Overfit"), Wrong())
    entry, (finding,) = runner.advance(runner.begin(), steps(1)[0], frozenset(), frozenset())
    assert entry["status"] == Status.ERROR.value
    assert "KeyError" in finding.message


@pytest.mark.parametrize("name", names())
def test_no_rule_of_a_running_job_stumbles_over_what_its_state_lacks(name: str) -> None:
    one = Engine([RuleSpec(name, name)])
    before, _ = run_through(one, losses([2.3, 2.2, 2.1]))
    kept = before["rules"][name]["state"]
    for missing in kept if isinstance(kept, dict) else ():
        fewer = {key: value for key, value in kept.items() if key != missing}
        state = {"rules": {name: {**before["rules"][name], "state": fewer}}}
        for obs in losses([2.0, 2.0, 2.0]):
            state = one.advance(state, obs).state
        assert one.verdicts(state)[0].status is not Status.ERROR


def test_replay_gives_findings_and_every_verdict() -> None:
    fold = replay([RuleSpec("n", "ExplodingTensor"), RuleSpec("o", "Overfit")], losses([1.0, NAN]))
    assert [f.step for f in fold.findings] == [1]
    assert [(v.rule, v.status) for v in fold.changed] == [
        ("n", Status.ISSUES_FOUND),
        ("o", Status.NO_ISSUES_FOUND),
    ]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from([2.3, 1.0, NAN, INF, 50.0]), max_size=40),
    st.integers(0, 40),
)
def test_a_split_run_equals_the_whole_run(values: list[float], cut: int) -> None:
    specs = [RuleSpec(name, name) for name in names()]
    run, one = losses(values), Engine(specs)
    whole, found = run_through(one, run)
    first, early = run_through(one, run[:cut])
    last = first
    late: list[Finding] = []
    for obs in run[cut:]:
        fold = one.advance(json.loads(json.dumps(last)), obs)
        last = fold.state
        late += fold.findings
    assert (last, early + late) == (whole, found)


def test_the_state_of_a_thousand_tensors_stays_under_100_kb() -> None:
    script = Script(*matrices(*(f"layer{i}.weight" for i in range(500))))
    resting = {t.name: 0.5 if t.collection == "weights" else 0.0 for t in script.layout.tensors}
    run = [script.step(i * 10, resting, loss=2.3) for i in range(5)]
    worst = 0
    one = Engine([RuleSpec(name, name) for name in names()])
    state = one.start()
    for obs in run:
        state = one.advance(state, obs).state
        worst = max(worst, len(json.dumps(state)))
    assert worst < 100_000


def test_the_base_rule_asks_to_be_written() -> None:
    rule: Rule[Any] = Rule()
    with pytest.raises(NotImplementedError):
        rule.start()


class TestWhatNoLedgerWouldKeep:
    @pytest.mark.parametrize(
        ("evidence", "why"),
        [
            ({"tensors": {1, 2}}, "not JSON"),
            ({"when": object()}, "not JSON"),
            ({"names": ["x" * 1_000] * 40}, "grew beyond 32768 bytes"),
        ],
    )
    def test_evidence_that_cannot_be_stored_is_a_crash_of_that_rule(
        self, evidence: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        advance = Scripted.advance

        def odd(self: Scripted, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
            found = Finding(obs.step, "", 1.0, 0.0, "m", obs.step, evidence)
            return (state, [found]) if self.blind else advance(self, state, obs)

        monkeypatch.setattr(Scripted, "advance", odd)
        one = Engine([spec("odd", blind=True), spec("good", per_step=1)])
        state, found = run_through(one, steps(2))
        odd_one, good = one.verdicts(state)
        assert (odd_one.status, good.status) == (Status.ERROR, Status.ISSUES_FOUND)
        assert why in odd_one.note
        assert [f.code for f in found if f.rule == "odd"] == ["ENG001"]

    def test_what_is_no_list_of_findings_is_a_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Scripted, "advance", lambda *given: (given[1], ["text"]))
        one = Engine([spec()])
        state, _ = run_through(one, steps(1))
        assert one.verdicts(state)[0].status is Status.ERROR

    def test_a_long_message_is_cut(self) -> None:
        found = Finding(0, "", 1.0, 0.0, "m" * 10_000, 0)
        assert len(complete(found, spec(), Scripted()).message) == 2_000

    @pytest.mark.parametrize(
        ("own", "why"),
        [
            ({"seen": {1, 2}}, "not JSON"),
            ({"seen": "x" * MAX_STATE_BYTES}, "grew beyond 262144 bytes"),
        ],
    )
    def test_a_state_that_cannot_be_stored_ends_its_rule_and_no_other(
        self, own: Json, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one = Engine([spec("odd", blind=True), spec("good")])
        monkeypatch.setattr(
            Scripted,
            "advance",
            lambda self, _, obs: (own if self.blind else {"seen": obs.step}, []),
        )
        before = one.advance(one.start(), steps(4)[3]).state
        fold = one.bounded(before, step=3)
        assert [v.status for v in one.verdicts(fold.state)] == [Status.ERROR, Status.IN_PROGRESS]
        assert [(v.rule, v.status) for v in fold.changed] == [("odd", Status.ERROR)]
        assert [(f.rule, f.step, f.code) for f in fold.findings] == [("odd", 3, "ENG001")]
        assert why in fold.changed[0].note
        assert json.loads(json.dumps(fold.state)) == fold.state
        assert before["rules"]["odd"]["state"] == own
        again = one.bounded(one.advance(fold.state, steps(5)[4]).state, step=4)
        assert (again.changed, again.findings) == ((), ())

    def test_states_within_bounds_stay_as_they_are(self) -> None:
        one = Engine([spec("a"), spec("b")])
        state, _ = run_through(one, steps(3))
        fold = one.bounded(state, step=2)
        assert (fold.state, fold.findings, fold.changed) == (state, (), ())

    def test_the_largest_state_is_named(self) -> None:
        one = Engine([spec("a"), spec("b")])
        state = one.start()
        state["rules"]["b"]["state"] = {"seen": 10**9}
        assert one.largest(state) == "b"
        assert one.largest(one.give_up(state, {"a": "x", "b": "y"}, step=0).state) == ""
