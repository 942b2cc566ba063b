"""Custom rules asked through the protocol say what the same rules say in the engine itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.custom.rules import RULES, WAYS
from tests.unit.pipeline.world import obs
from trainwarden import rules
from trainwarden.custom.asking import ABSENT, NO_TIME, Asking
from trainwarden.custom.local import LocalCustomRules
from trainwarden.engine import ANSWERS, Engine, RuleSpec
from trainwarden.errors import BadInputError, RetryableError
from trainwarden.model import Finding, Json, Mode, Observation, Status, Verdict

pytestmark = pytest.mark.usefixtures("stand_ins")
HERE = LocalCustomRules(RULES)
SPECS = (
    RuleSpec("HighLoss", "HighLoss", {"limit": 2.0}),
    RuleSpec("ExplodingTensor", "ExplodingTensor"),
    RuleSpec("every", "HighLoss", {"limit": 2.0, "patience": 2}, every=3, modes=(Mode.TRAIN,)),
    RuleSpec("late", "HighLoss", {"limit": 1.0}, start_step=2, end_step=5),
)


class Port:
    """A port whose answers are made by a function of the question."""

    def __init__(self, reply: Callable[[bytes], bytes]) -> None:
        self._reply = reply
        self.questions: list[dict[str, Json]] = []

    def ask(self, question: bytes) -> bytes:
        self.questions.append(json.loads(question))
        return self._reply(question)


def fold(
    engine: Engine, run: list[Observation], asking: Asking, sizes: Iterator[int]
) -> tuple[Json, list[Finding], tuple[Verdict, ...]]:
    """Fold a run, asking for a few steps at a time, with JSON in between."""
    state, found, position = engine.start(), list[Finding](), 0
    while position < len(run):
        ahead = run[position : position + next(sizes)]
        answered = asking.ahead(engine, state, ahead)
        assert 1 <= answered <= len(ahead)
        for one in ahead[:answered]:
            step = engine.advance(state, one)
            found += step.findings
            state = step.state
        state = json.loads(json.dumps(state))
        position += answered
    last = engine.finish(state, stopped=False, answers=asking.finish(engine, state))
    entries = {
        key: {name: value for name, value in entry.items() if name not in {"code", "loud"}}
        for key, entry in last.state["rules"].items()
    }
    return entries, [*found, *last.findings], engine.verdicts(last.state)


def here(specs: tuple[RuleSpec, ...], run: list[Observation]) -> Any:
    """The same, by the rules themselves in this engine."""
    before = rules._added[:]
    rules._added[:] = [(cls, "here") for cls in RULES.values()]
    rules.registry.cache_clear()
    try:
        return fold(Engine(specs), run, Asking(None), iter(lambda: 50, 0))
    finally:
        rules._added[:] = before
        rules.registry.cache_clear()


LOSSES = st.lists(st.sampled_from([1.0, 3.0, 3.0, 1e9]), max_size=12)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(losses=LOSSES, sizes=st.lists(st.integers(1, 5), min_size=1), modes=st.randoms())
def test_asked_in_parts_of_any_size_they_say_what_they_say_here(
    losses: list[float], sizes: list[int], modes: Any
) -> None:
    run = [
        obs(step, loss, mode=modes.choice([Mode.TRAIN, Mode.EVAL]))
        for step, loss in enumerate(losses)
    ]
    there = fold(Engine(SPECS), run, Asking(HERE), (n for _ in iter(int, 1) for n in sizes))
    assert there == here(SPECS, run)


@pytest.mark.parametrize("how", WAYS)
def test_whatever_a_rule_does_it_alone_gets_an_error(how: str) -> None:
    specs = (*SPECS, RuleSpec("Broken", "Broken", {"how": how}))
    run = [obs(step, 3.0) for step in range(6)]
    _, found, verdicts = fold(Engine(specs), run, Asking(HERE), iter(lambda: 4, 0))
    _, expected, others = here(SPECS, run)
    assert [v for v in verdicts if v.rule != "Broken"] == list(others)
    assert [f for f in found if f.rule != "Broken"] == expected
    [broken] = [v for v in verdicts if v.rule == "Broken"]
    assert broken.status is Status.ERROR
    [crash] = [f for f in found if f.rule == "Broken"]
    assert (crash.step, crash.code) == (3, "ENG001")


def edited(change: Callable[[dict[str, Json]], object]) -> Callable[[bytes], bytes]:
    def reply(question: bytes) -> bytes:
        answer = json.loads(HERE.ask(question))
        change(answer)
        return json.dumps(answer).encode()

    return reply


def high(answer: Mapping[str, Json], **fields: Json) -> None:
    for step in answer["steps"]:
        if "HighLoss" in step:
            step["HighLoss"].update(fields)


FORGED: dict[str, Callable[[dict[str, Json]], object]] = {
    "no steps": lambda a: a.update(steps=[]),
    "too many steps": lambda a: a["steps"].extend([{}] * 9),
    "another version": lambda a: a.update(version=2),
    "more keys": lambda a: a.update(stop=True),
    "a rule nobody asked": lambda a: a["steps"][0].update(ExplodingTensor={"error": "x"}),
    "an answer that is none": lambda a: a["steps"][0].update(HighLoss=[]),
    "more in an answer": lambda a: high(a, status="NoIssuesFound"),
    "no state": lambda a: a["steps"][0]["HighLoss"].pop("state"),
    "a large state": lambda a: high(a, state="x" * 300_000),
    "a count that is none": lambda a: high(a, total=-1),
    "findings counted only": lambda a: high(a, findings=[], total=5),
    "three findings": lambda a: high(a, findings=[{}] * 3),
    "a finding that is none": lambda a: high(a, findings=[{"step": 0}]),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_answer_harms_the_rule_it_is_about_and_no_other(how: str) -> None:
    specs = (SPECS[0], SPECS[1], SPECS[3])

    def change(answer: dict[str, Json]) -> None:
        if any("HighLoss" in step for step in answer["steps"]):
            FORGED[how](answer)

    run = [obs(step, 3.0) for step in range(4)]
    port = Port(edited(change))
    _, _, verdicts = fold(Engine(specs), run, Asking(port), iter(lambda: 4, 0))
    found = {v.rule: v for v in verdicts}
    assert found["HighLoss"].status is Status.ERROR
    assert found["late"].status is Status.ISSUES_FOUND
    assert found["ExplodingTensor"].status is Status.NO_ISSUES_FOUND


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"version": 1, "steps": [NaN]}', b"x" * 6_000_000, b"\xff"],
    ids=["empty", "cut", "list", "null", "nan", "large", "bytes"],
)
def test_garbage_is_an_error_of_the_custom_rules_alone(body: bytes) -> None:
    run = [obs(0, float("inf"))]
    port = Port(lambda _: body)
    _, _, verdicts = fold(Engine(SPECS), run, Asking(port), iter(lambda: 1, 0))
    statuses = {v.rule: v.status for v in verdicts}
    assert statuses.pop("ExplodingTensor") is Status.ISSUES_FOUND
    assert {*statuses.values()} == {Status.ERROR}


def notes(asking: Asking) -> dict[str, str]:
    _, _, verdicts = fold(Engine(SPECS[:3]), [obs(0)], asking, iter(lambda: 1, 0))
    return {v.rule: v.note for v in verdicts if v.status is Status.ERROR}


def test_a_throttled_function_is_not_asked_rule_by_rule() -> None:
    def throttled(_: bytes) -> bytes:
        raise RetryableError("throttled twice")

    port = Port(throttled)
    assert all("throttled twice" in note for note in notes(Asking(port)).values())
    assert len(port.questions) == 1


def test_a_process_without_a_function_says_so() -> None:
    assert all(ABSENT in note for note in notes(Asking(None)).values())


def test_without_time_nobody_is_asked_alone() -> None:
    def crashed(_: bytes) -> bytes:
        raise BadInputError("an answer", "Task timed out")

    assert all(NO_TIME in note for note in notes(Asking(Port(crashed), lambda: True)).values())
    found = notes(Asking(Port(crashed)))
    assert found.keys() == {"HighLoss", "every"}
    assert all("Task timed out" in note for note in found.values())


def test_what_is_settled_is_not_asked_again() -> None:
    port = Port(HERE.ask)
    engine = Engine((RuleSpec("Broken", "Broken"),))
    run = [obs(step) for step in range(3, 6)]
    fold(engine, run, Asking(port), iter(lambda: 1, 0))
    assert len(port.questions) == 1
    assert run[-1].memo[ANSWERS] == {}


def test_a_question_too_large_is_asked_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwarden.custom.protocol.MAX_BYTES", 6_000)
    run = [obs(step, 3.0) for step in range(40)]
    port = Port(HERE.ask)
    there = fold(Engine(SPECS), run, Asking(port), iter(lambda: 40, 0))
    assert len(port.questions) > 2
    assert there == here(SPECS, run)


def test_time_that_passes_is_told_to_those_who_care() -> None:
    engine, asking = Engine(SPECS), Asking(HERE)
    state = engine.start()
    fold_ = engine.wait(state, 17.0, asking.wait(engine, state, 17.0))
    assert fold_.state["rules"]["HighLoss"]["state"] == {"row": 0, "steps": 0, "waited": 17.0}
