"""A verdict asks the job's hook for detail: once for each rule, so often a job and no more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.pipeline.world import JOB, NAN, World, obs, training_job
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.policy import MAX_CAPTURES
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import EntryKind
from trainwarden.wire.control import MAX_CONTROL_BYTES, Control, DetailRequest
from trainwarden.wire.keys import control_key

RULES: Any = {"ExplodingTensor": {"action": "capture-more"}, "Overfit": {"action": "capture-more"}}
REQUEST = DetailRequest("ExplodingTensor-1", tensors=("loss",))


def broken(rules: Any = None, **settings: Any) -> World:
    """A loop somewhere whose loss became NaN."""
    world = World(**settings)
    world.manifest(rules=RULES if rules is None else rules)
    world.pipeline().notice(world.steps(0, obs(0), obs(1, NAN)))
    return world


def asked_of(world: World) -> tuple[DetailRequest, ...]:
    body = world.objects.get(control_key(JOB), max_bytes=MAX_CONTROL_BYTES)
    return Control.from_bytes(body).details if body else ()


def test_the_verdict_says_that_detail_is_asked_for() -> None:
    (told,) = (e for e in broken().events("Verdict Changed") if e["rule"] == "ExplodingTensor")
    assert told["capture_requested"] is True
    assert told["stop_requested"] is False, "it has an action of its own"
    assert {a["kind"]: a["allowed"] for a in told["actions"]} == {
        "notify": True,
        "capture-more": True,
    }


def test_the_hook_is_asked_once_and_that_is_recorded_and_told_to_nobody() -> None:
    world = broken()
    for _ in range(2):  # events may come twice
        done = world.pipeline().capture_more(JOB, "ExplodingTensor")
        assert done == {
            "outcome": "asked",
            "reason": "the next 50 steps are saved in detail",
            "steps": 50,
            "tensors": ["loss"],
        }
    assert asked_of(world) == (REQUEST,)
    (entry,) = world.entries(EntryKind.ACTION)
    assert (entry.id, entry.body["outcome"]) == ("capture-more#ExplodingTensor", "asked")
    (told,) = world.events("Action Taken")
    assert (told["outcome"], told["muted"]) == ("asked", True)
    assert told["details"] == {"steps": 50, "tensors": ["loss"]}


def test_a_stop_that_was_asked_for_stays() -> None:
    world = broken()
    world.pipeline().ask_to_stop(JOB, "NaN")
    world.pipeline().capture_more(JOB, "ExplodingTensor")
    body = world.objects.get(control_key(JOB), max_bytes=MAX_CONTROL_BYTES)
    assert Control.from_bytes(body or b"") == Control(
        2, stop=True, reason="NaN", details=(REQUEST,), stop_version=1
    )


def test_a_job_of_sagemaker_is_asked_without_any_permission() -> None:
    world = World()
    world.training.add(training_job(**{"rule:ExplodingTensor": "action=capture-more"}))
    world.sagemaker_manifest()
    world.steps(0, obs(0, NAN))
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(**{"rule:ExplodingTensor": "action=capture-more"}))
    assert pipeline.capture_more(JOB, "ExplodingTensor")["outcome"] == "asked"
    assert asked_of(world) == (REQUEST,)


def test_a_set_names_what_its_rules_found() -> None:
    both: Any = [
        "Overfit",
        {"set": "numbers", "rules": ["ExplodingTensor"], "action": "capture-more"},
    ]
    world = broken(both)
    assert world.pipeline().capture_more(JOB, "numbers")["tensors"] == ["loss"]
    assert [one.id for one in asked_of(world)] == ["numbers-1"]


@pytest.mark.parametrize(
    ("rules", "rule", "reason"),
    [
        ({"ExplodingTensor": {"action": "stop"}}, "ExplodingTensor", "does not ask for detail"),
        ({}, "ExplodingTensor", "does not ask for detail"),
        (None, "Overfit", "the verdict of Overfit is InProgress"),
        (None, "Nothing", "no rule Nothing runs"),
    ],
)
def test_what_nobody_asked_for_is_refused_and_recorded(rules: Any, rule: str, reason: str) -> None:
    world = broken(rules)
    done = world.pipeline().capture_more(JOB, rule)
    assert done["outcome"] == "refused"
    assert reason in done["reason"]
    assert asked_of(world) == ()
    assert [told["muted"] for told in world.events("Action Taken")] == [True]


def test_a_job_that_is_over_is_not_asked() -> None:
    world = broken()
    world.pipeline().notice(world.end(0))
    done = world.pipeline().capture_more(JOB, "ExplodingTensor")
    assert (done["outcome"], done["reason"]) == ("refused", "the job is already over")


def test_a_job_is_asked_so_often_and_no_more() -> None:
    keys = [f"e{number}" for number in range(MAX_CAPTURES + 1)]
    world = broken([{"rule": "ExplodingTensor", "key": k, "action": "capture-more"} for k in keys])
    outcomes = [world.pipeline().capture_more(JOB, key)["outcome"] for key in keys]
    assert outcomes == ["asked"] * MAX_CAPTURES + ["refused"]
    assert world.pipeline().capture_more(JOB, keys[0])["outcome"] == "asked", "it was, before"
    assert len(asked_of(world)) == MAX_CAPTURES


class _Denied(MemoryObjects):
    """A bucket in which control documents may not be written."""

    def replace(self, key: str, *_: Any, **__: Any) -> None:
        raise BadInputError("to change the control document", f"AccessDenied for {key}")


def test_what_failed_is_recorded_and_told() -> None:
    world = broken(objects=_Denied())
    assert world.pipeline().capture_more(JOB, "ExplodingTensor")["outcome"] == "failed"
    (told,) = world.events("Action Taken")
    assert told["muted"] is False
    assert "AccessDenied" in told["reason"]


def test_a_job_nobody_knows_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        World().pipeline().capture_more("unknown", "Overfit")
