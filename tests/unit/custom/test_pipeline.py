"""Custom rules in the pipeline: folded once, in any order of arrival, as they would be here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.custom.rules import RULES
from tests.unit.pipeline.world import JOB, World, obs
from trainwarden import rules
from trainwarden.custom.local import LocalCustomRules
from trainwarden.model import Mode, Status, Verdict
from trainwarden.pipeline import Pipeline, verdicts
from trainwarden.store.ports import CustomRules, EntryKind, JobStatus

ASKED = ["ExplodingTensor", {"rule": "HighLoss", "limit": 2.0}, {"rule": "Broken", "how": "raise"}]
Ask = Callable[[bytes], bytes]


class Port:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.steps: list[int] = []

    def ask(self, question: bytes) -> bytes:
        self.steps.append(len(json.loads(question).get("steps", "")))
        return self._ask(question)


def pipeline(world: World, custom: CustomRules | None) -> Pipeline:
    return Pipeline(world.objects, world.ledger, None, world.settings, lambda: world.clock, custom)


def recorded(seed: int, workers: int = 2) -> list[tuple[str, bytes]]:
    """Objects of several workers in the order in which they arrive."""
    dice = random.Random(seed)  # noqa: S311 - a test must be repeatable
    world = World()
    world.manifest(rules=ASKED, world_size=workers, workers=tuple(range(workers)))
    for worker in range(workers):
        step = seq = 0
        while step < 24:
            size = dice.randint(1, 6)
            run = [
                obs(at, dice.choice([1.0, 3.0]), worker=worker, mode=mode)
                for at in range(step, step + size)
                for mode in ((Mode.TRAIN, Mode.EVAL) if at % 5 == 4 else (Mode.TRAIN,))
                if at % 7 or worker == 0
            ]
            if run:
                world.steps(seq, *run, worker=worker)
                seq += 1
            step += size
        world.end(seq - 1, worker=worker)
    bodies = [(key, world.objects.get(key, max_bytes=10**8)) for key in world.objects.keys("")]
    found = [(key, body) for key, body in bodies if body is not None]
    dice.shuffle(found)
    return found


def judged(objects: list[tuple[str, bytes]], custom: CustomRules | None, limit: int) -> Any:
    """Fold after each arrival, by a process that has just started."""
    world = World()
    for key, body in objects:
        world.put(key, body)
        while pipeline(world, custom).ingest(JOB, keys=(key,)).more:
            pass
    for _ in range(limit):
        pipeline(world, custom).sweep()
    record = world.record()
    assert record.status is JobStatus.CLOSED
    found = {entry.id: dict(entry.body) for entry in world.ledger.entries(JOB, EntryKind.FINDING)}
    return found, verdicts(record), record


def here(objects: list[tuple[str, bytes]]) -> Any:
    """The same, with the rules themselves in this process."""
    before = rules._added[:]
    rules._added[:] = [(cls, "here") for cls in RULES.values()]
    rules.registry.cache_clear()
    try:
        return judged(objects, None, 1)
    finally:
        rules._added[:] = before
        rules.registry.cache_clear()


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("seed", range(6))
def test_verdicts_and_findings_are_those_of_rules_that_run_here(seed: int) -> None:
    objects = recorded(seed)
    port = Port(LocalCustomRules(RULES).ask)
    found, standing, _ = judged(objects, port, 1)
    expected, others, _ = here(objects)
    assert found == expected
    assert standing == others
    assert {v.rule: v.status for v in standing} == {
        "ExplodingTensor": Status.NO_ISSUES_FOUND,
        "HighLoss": Status.ISSUES_FOUND,
        "Broken": Status.ERROR,
    }


@pytest.mark.usefixtures("stand_ins")
def test_an_object_is_one_question() -> None:
    world = World()
    world.manifest(rules=[{"rule": "HighLoss", "limit": 99.0}])
    for seq in range(3):
        world.steps(seq, *(obs(10 * seq + step) for step in range(10)))
    port = Port(LocalCustomRules(RULES).ask)
    assert pipeline(world, port).ingest(JOB).folded == 30
    assert len(port.steps) == 3


def test_who_does_not_know_the_rules_reads_where_they_stand(
    stand_ins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del stand_ins
    _, standing, record = judged(recorded(0), LocalCustomRules(RULES), 1)
    monkeypatch.setattr(rules, "_added", [])
    rules.registry.cache_clear()
    read: Mapping[str, Verdict] = {v.rule: v for v in verdicts(record)}
    assert read == {v.rule: v for v in standing}


@pytest.mark.usefixtures("stand_ins")
def test_a_rule_that_left_the_deployment_is_stopped_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.manifest(rules=[{"rule": "HighLoss", "limit": 99.0}])
    world.steps(0, obs(0))
    pipeline(world, LocalCustomRules(RULES)).ingest(JOB)
    monkeypatch.setattr(rules, "_added", [])
    rules.registry.cache_clear()
    world.steps(1, obs(1))
    world.end(1)
    pipeline(world, None).ingest(JOB)
    record = world.record()
    assert record.status is JobStatus.CLOSED
    [verdict] = verdicts(record)
    assert (verdict.code, verdict.status) == ("USR901", Status.STOPPED)
    assert "no longer had this rule" in verdict.note
