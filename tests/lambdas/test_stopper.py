"""The stopper: what the state machine asks, with the answers it branches on."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.stopper.handler import handler
from tests.lambdas.conftest import Context
from tests.unit.pipeline.world import JOB, NAN, World, obs, training_job
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.pipeline import Settings
from trainwarden.store.ports import EntryKind
from trainwarden.wire.control import Control
from trainwarden.wire.keys import control_key

AUTHORIZE = {"operation": "authorize", "job": JOB, "rule": "ExplodingTensor"}


def record(outcome: str, reason: str = "SageMaker says: Stopping") -> dict[str, Any]:
    result = {"outcome": outcome, "reason": reason}
    return {**AUTHORIZE, "operation": "record", "kind": "stop", "result": result}


@pytest.fixture
def broken(world: World) -> World:
    """A SageMaker job whose loss became NaN."""
    world.training.add(training_job(stop="allow"))
    world.sagemaker_manifest()
    world.pipeline(asks_sagemaker=True).notice(world.steps(0, obs(0), obs(1, NAN)))
    assert world.findings() == [("ExplodingTensor", 1)]
    return world


def test_a_marked_job_with_a_verdict_may_be_stopped(broken: World, context: Context) -> None:
    del broken
    assert handler(AUTHORIZE, context) == {
        "allowed": True,
        "dry_run": False,
        "reason": "ExplodingTensor found issues and the job carries trainwarden:stop=allow",
        "how": "sagemaker",
    }


def test_the_tag_is_read_afresh(broken: World, context: Context) -> None:
    broken.training.add(training_job())
    answer = handler(AUTHORIZE, context)
    assert (answer["allowed"], answer["reason"]) == (
        False,
        "the job has no tag trainwarden:stop=allow",
    )


def test_a_rule_without_a_verdict_stops_nothing(broken: World, context: Context) -> None:
    del broken
    answer = handler({**AUTHORIZE, "rule": "Overfit"}, context)
    assert not answer["allowed"]


def test_a_job_nobody_knows_is_an_error_of_its_own(world: World, context: Context) -> None:
    del world
    with pytest.raises(NotFoundError):
        handler(AUTHORIZE, context)


def test_a_dry_run_is_told_with_the_decision(
    broken: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lambdas.shared import wiring

    broken.settings = Settings(dry_run=True)
    pipeline = broken.pipeline(asks_sagemaker=True)
    monkeypatch.setattr(wiring, "pipeline", lambda: pipeline)
    answer = handler(AUTHORIZE, context)
    assert (answer["allowed"], answer["dry_run"]) == (True, True)


def test_an_action_is_recorded_and_told_once(broken: World, context: Context) -> None:
    for _ in range(2):
        assert handler(record("stopped"), context)["outcome"] == "stopped"
    assert [entry.id for entry in broken.entries(EntryKind.ACTION)] == ["stop#ExplodingTensor"]
    (told,) = broken.events("Action Taken")
    assert (told["outcome"], told["rule"]) == ("stopped", "ExplodingTensor")


def test_an_operation_that_does_not_exist_is_refused(world: World, context: Context) -> None:
    del world
    with pytest.raises(BadInputError, match="authorize, ask, capture or record"):
        handler({**AUTHORIZE, "operation": "stop"}, context)


def test_a_loop_outside_sagemaker_is_asked_through_its_control_document(
    world: World, context: Context
) -> None:
    world.manifest(capture={"stop": "allow"})
    world.pipeline().notice(world.steps(0, obs(0), obs(1, NAN)))
    answer = handler(AUTHORIZE, context)
    assert (answer["allowed"], answer["how"]) == (True, "control")
    for _ in range(2):
        assert handler({**AUTHORIZE, "operation": "ask"}, context)["outcome"] == "asked"
    body = world.objects.get(control_key(JOB), max_bytes=10_000)
    asked = Control.from_bytes(body or b"")
    assert (asked.stop, asked.reason) == (True, "ExplodingTensor found issues")
    handler(record("asked"), context)
    (told,) = world.events("Action Taken")
    assert told["outcome"] == "asked"


def test_a_hook_is_asked_for_detail_whatever_started_the_job(
    world: World, context: Context
) -> None:
    world.manifest(rules={"ExplodingTensor": {"action": "capture-more"}})
    world.pipeline().notice(world.steps(0, obs(0), obs(1, NAN)))
    for _ in range(2):
        assert handler({**AUTHORIZE, "operation": "capture"}, context)["outcome"] == "asked"
    body = world.objects.get(control_key(JOB), max_bytes=10_000)
    (request,) = Control.from_bytes(body or b"").details
    assert request.id == "ExplodingTensor-1"
    assert [entry.id for entry in world.entries(EntryKind.ACTION)] == [
        "capture-more#ExplodingTensor"
    ]
