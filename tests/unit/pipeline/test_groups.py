"""One root cause is told once, from the fold to the message, and so is a set of rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.pipeline.world import JOB, NAN, World, obs, training_job
from trainwarden.messages import compose
from trainwarden.model import Json
from trainwarden.pipeline import outcome
from trainwarden.rules import registry

LOUD = {"ExplodingTensor": {"severity": "error"}}
LOSS = {"LossNotDecreasing": {"num_steps": 2, "diff_percent": 5}}


@pytest.fixture(autouse=True)
def _explains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let ExplodingTensor explain LossNotDecreasing, whatever the catalogue says."""
    metas = {name: cls.meta for name, cls in registry().items()}
    closed = {"ExplodingTensor": frozenset({"LossNotDecreasing"})}
    assert {*closed} <= {*metas}
    monkeypatch.setattr("trainwarden.engine.engine.explained", lambda: closed)
    outcome._judge.cache_clear()
    yield
    outcome._judge.cache_clear()


def judged(rules: Json, losses: list[float], **tags: str) -> World:
    """Judge a run on SageMaker with these losses at its steps, one object a step."""
    world = World()
    world.training.add(training_job(**tags))
    world.sagemaker_manifest(rules=rules)
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(**tags))
    for step, loss in enumerate(losses):
        pipeline.notice(world.steps(step, obs(step, loss)))
    return world


def told(world: World) -> dict[str, dict[str, Any]]:
    return {data["rule"]: data for data in world.events("Verdict Changed")}


def messages(world: World) -> dict[str, str]:
    """E-mails of verdicts, by rule."""
    found = {}
    for event in world.events():
        detail = event["detail"]
        message = compose(event["detail-type"], detail)
        if event["detail-type"] == "Verdict Changed" and message:
            found[detail["data"]["rule"]] = message.email
    return found


def test_a_symptom_after_its_cause_is_recorded_and_told_with_it() -> None:
    world = judged([LOUD, LOSS], [1.0, NAN, 1.0, 1.0, 1.0, 1.0], stop="allow")
    events = told(world)
    assert (events["ExplodingTensor"]["cause"], events["ExplodingTensor"]["explains"]) == ("", [])
    symptom = events["LossNotDecreasing"]
    assert (symptom["cause"], symptom["stopping"]) == ("ExplodingTensor", "ExplodingTensor")
    assert {a["kind"]: a["allowed"] for a in symptom["actions"]} == {"notify": False}
    assert list(messages(world)) == ["ExplodingTensor"]
    assert {rule for rule, _ in world.findings()} == {"ExplodingTensor", "LossNotDecreasing"}
    assert world.verdicts()["LossNotDecreasing"].cause == "ExplodingTensor"


def test_a_cause_after_its_symptom_says_what_it_explains() -> None:
    world = judged([LOUD, LOSS], [1.0, 1.0, 1.0, 1.0, 1.0, NAN])
    assert list(messages(world)) == ["LossNotDecreasing", "ExplodingTensor"]
    since = told(world)["LossNotDecreasing"]["since_step"]
    text = messages(world)["ExplodingTensor"]
    assert f"This explains LossNotDecreasing since step {since}." in text
    assert world.verdicts()["LossNotDecreasing"].cause == "ExplodingTensor"


def test_a_symptom_still_asks_for_the_stop_that_its_cause_does_not_ask_for() -> None:
    quiet = {"ExplodingTensor": {"severity": "info"}}
    stops = {"LossNotDecreasing": {**LOSS["LossNotDecreasing"], "action": "stop"}}
    losses = [1.0, NAN, 1.0, 1.0, 1.0, 1.0]
    assert told(judged([quiet, stops], losses, stop="allow"))["LossNotDecreasing"]["stop_requested"]
    both = told(judged([LOUD, stops], losses, stop="allow"))["LossNotDecreasing"]
    assert not both["stop_requested"]
    assert both["actions"][1]["reason"] == "ExplodingTensor asks for it already"


def test_a_symptom_of_a_muted_cause_is_told() -> None:
    losses = [1.0, NAN, 1.0, 1.0, 1.0, 1.0]
    world = judged([LOUD, LOSS], losses, mute="ExplodingTensor")
    assert list(messages(world)) == ["LossNotDecreasing"]


def test_an_address_that_the_cause_does_not_reach_is_told_of_the_symptom() -> None:
    losses = [1.0, NAN, 1.0, 1.0, 1.0, 1.0]
    own = {"ExplodingTensor": {"action": ["email:a@example.com"]}}
    other = {"LossNotDecreasing": {**LOSS["LossNotDecreasing"], "action": ["email:b@example.com"]}}
    assert list(messages(judged([own, other], losses))) == ["ExplodingTensor", "LossNotDecreasing"]
    same = {"LossNotDecreasing": {**LOSS["LossNotDecreasing"], "action": ["email:a@example.com"]}}
    assert list(messages(judged([own, same], losses))) == ["ExplodingTensor"]


def test_no_message_says_that_a_job_goes_on_while_it_is_being_stopped() -> None:
    other = {"StalledTrainingRule": {"threshold": 5}}
    world = judged([LOUD, other], [1.0, NAN], stop="allow")
    world.clock += 1_000
    world.pipeline().sweep()
    assert told(world)["StalledTrainingRule"]["stopping"] == "ExplodingTensor"
    text = messages(world)["StalledTrainingRule"]
    assert "keeps running" not in text
    world.pipeline().record_action(JOB, "stop", "ExplodingTensor", {"outcome": "refused"})
    assert world.progress()["stop"] == "refused"


def test_a_stop_that_came_to_nothing_is_not_under_way() -> None:
    world = judged([LOUD, LOSS], [1.0, NAN], stop="allow")
    refused = {"outcome": "refused", "reason": "no"}
    world.pipeline().record_action(JOB, "stop", "ExplodingTensor", refused)
    for step in range(2, 8):
        world.pipeline().notice(world.steps(step, obs(step, 1.0)))
    assert told(world)["LossNotDecreasing"]["stopping"] == ""


SET: Json = {"set": "both", "when": "all", "rules": [LOUD, LOSS], "action": "stop"}


class TestSets:
    def test_a_set_is_told_once_and_asks_for_the_stop_of_all_its_rules(self) -> None:
        world = judged(SET, [1.0, 1.0, 1.0, 1.0, NAN], stop="allow")
        events = told(world)
        first = events["LossNotDecreasing"]
        assert (first["stop_requested"], first["actions"][0]["allowed"]) == (False, False)
        assert events["both"]["stop_requested"]
        assert events["both"]["code"] == "SET001"
        assert not events["ExplodingTensor"]["stop_requested"]
        assert list(messages(world)) == ["both"]
        assert ("both", 4) in world.findings()
        assert world.verdicts()["both"].findings == 2

    def test_its_stop_is_authorized_like_that_of_any_rule(self) -> None:
        for losses, allowed in (([1.0, 1.0, 1.0, 1.0, NAN], True), ([1.0, NAN], False)):
            world = judged(SET, losses, stop="allow")
            decision = world.pipeline(asks_sagemaker=True).authorize_stop(JOB, "both")
            assert decision.allowed is allowed, decision.reason

    def test_a_member_with_actions_of_its_own_speaks_for_itself(self) -> None:
        own = {"ExplodingTensor": {"action": "stop"}}
        rules = {**SET, "rules": [own, LOSS]}
        world = judged(rules, [1.0, NAN], stop="allow")
        assert list(messages(world)) == ["ExplodingTensor"]
        assert told(world)["ExplodingTensor"]["stop_requested"]

    def test_the_sets_of_a_running_job_stay_as_they_are(self) -> None:
        world = judged(SET, [1.0, 1.0])
        later = training_job(rules="default")
        world.pipeline().open_job(later)
        assert [one["key"] for one in world.record().config["sets"]] == ["both"]
        world.pipeline().close_job(replace(later, status="Completed"))
        world.pipeline().notice(world.end(1))
        closed = world.events("Job Closed")[0]["verdicts"]
        assert [v["rule"] for v in closed][-1] == "both"
