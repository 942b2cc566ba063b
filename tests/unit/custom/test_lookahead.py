"""What was seen ahead is used only if exactly that is folded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.custom.rules import RULES
from tests.unit.pipeline.world import JOB, obs
from trainwarden.custom.asking import Asking
from trainwarden.custom.local import LocalCustomRules
from trainwarden.engine import ANSWERS, Engine, RuleSpec
from trainwarden.model import Observation
from trainwarden.pipeline.lookahead import Lookahead, Position
from trainwarden.pipeline.streams import Stream
from trainwarden.wire.codec import StepsObject

pytestmark = pytest.mark.usefixtures("stand_ins")
START = Position(0, 0.0, frozenset(), frozenset())


class Port:
    def __init__(self) -> None:
        self.asked = 0
        self._rules = LocalCustomRules(RULES)

    def ask(self, question: bytes) -> bytes:
        self.asked += 1
        return self._rules.ask(question)


def stream(worker: int, *steps: int) -> Stream:
    run = tuple(obs(step, worker=worker) for step in steps)
    return Stream(worker, found=StepsObject(JOB, worker, 0, "run-1", run))


def heads(streams: dict[int, Stream]) -> dict[int, Observation]:
    return {worker: head for worker, one in streams.items() if (head := one.head()) is not None}


def after(position: Position, seen: Observation) -> Position:
    return position._replace(steps=position.steps + 1, time=seen.time)


@pytest.mark.parametrize("changed", ["nothing", "waived", "clock", "place", "heads"])
def test_a_step_that_came_out_otherwise_is_asked_about_again(changed: str) -> None:
    port, engine = Port(), Engine((RuleSpec("HighLoss", "HighLoss"),))
    look = Lookahead(Asking(port), lambda one, _: one)
    streams = {0: stream(0, 0, 1, 2), 1: stream(1, 0, 1, 2)}
    group, first = look.next(streams, heads(streams), START, engine, engine.start())
    assert (group, first.workers, port.asked) == ((0, 1), (0, 1), 1)
    state = engine.advance(engine.start(), first).state
    position = after(START, first)
    for one in streams.values():
        one.index += 1
    if changed == "waived":
        position = position._replace(waived=frozenset({2}))
    elif changed == "clock":
        position = position._replace(time=position.time + 1)
    elif changed == "place":
        streams[1] = replace(streams[1], seq=7)
    elif changed == "heads":
        streams[1] = stream(1, 5)
    group, second = look.next(streams, heads(streams), position, engine, state)
    assert port.asked == (1 if changed == "nothing" else 2)
    assert group == ((0,) if changed == "heads" else (0, 1))
    assert second.workers == group
    assert second.partial == (changed == "waived")
    assert second.memo[ANSWERS]["HighLoss"].state == {"row": 0, "steps": 2}


def test_without_custom_rules_nobody_is_asked() -> None:
    port, engine = Port(), Engine((RuleSpec("ExplodingTensor", "ExplodingTensor"),))
    streams = {0: stream(0, 0, 1)}
    look = Lookahead(Asking(port), lambda one, _: one)
    group, first = look.next(streams, heads(streams), START, engine, engine.start())
    assert (group, first.step, port.asked) == ((0,), 0, 0)
    assert ANSWERS not in first.memo
