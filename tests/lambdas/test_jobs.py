"""The function ``jobs``: SageMaker's state changes open and close jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lambdas.jobs.description import training_job as read
from lambdas.jobs.handler import handler
from tests.lambdas.conftest import Context, golden
from tests.unit.pipeline.world import JOB, World, obs, training_job
from trainwarden.store.ports import JobStatus, TrainingJob
from trainwarden.wire.seal import fingerprint


def change(**detail: Any) -> dict[str, Any]:
    event: dict[str, Any] = golden("sagemaker-state-change")
    event["detail"] |= {"TrainingJobName": JOB, **detail}
    return event


def test_the_event_is_read_as_a_description() -> None:
    event = golden("sagemaker-state-change")["detail"]
    name = "resnet50-2026-11-30"
    assert read(event) == TrainingJob(
        name=name,
        arn=f"arn:aws:sagemaker:eu-central-1:123456789012:training-job/{name}",
        status="InProgress",
        secondary_status="Training",
        tags={"team": "vision", "trainwarden:stop": "allow"},
        hyperparameters={"lr": "0.1"},
        debug_hook={"S3OutputPath": "s3://bucket/tensors"},
        debug_rules=(),
        failure="",
        instance="ml.p3.2xlarge",
    )


def test_what_a_job_lacks_may_be_null_or_absent() -> None:
    detail = {"TrainingJobName": "a", "TrainingJobArn": "b", "TrainingJobStatus": "Failed"}
    nulls = dict.fromkeys(("HyperParameters", "DebugHookConfig", "ResourceConfig", "Tags"))
    assert read(detail) == read({**detail, **nulls}) == TrainingJob("a", "b", "Failed")


def test_tags_may_be_a_list_as_in_the_api() -> None:
    detail = golden("sagemaker-state-change")["detail"]
    listed = [{"Key": key, "Value": value} for key, value in detail["Tags"].items()]
    assert read({**detail, "Tags": listed}).tags == detail["Tags"]


def test_a_tagged_job_is_opened_and_closed(world: World, context: Context) -> None:
    assert handler(change(), context) == {"job": JOB, "done": "opened"}
    assert world.record().training["tags"]["trainwarden:stop"] == "allow"
    event = change(TrainingJobStatus="Completed", SecondaryStatus="Completed")
    assert handler(event, context) == {"job": JOB, "done": "closed"}
    assert world.record().status is JobStatus.CLOSING
    assert world.record().outcome == "Completed"


def test_an_event_that_comes_twice_or_late_changes_nothing(world: World, context: Context) -> None:
    handler(change(TrainingJobStatus="Stopped"), context)
    version = world.record().version
    handler(change(TrainingJobStatus="Stopped"), context)
    handler(change(), context)
    assert world.record().outcome == "Stopped"
    assert world.record().status is JobStatus.CLOSING
    assert world.record().version == version


@pytest.mark.parametrize("status", ["InProgress", "Stopping", "Completed", "Failed", "Stopped"])
def test_a_job_without_a_tag_of_ours_is_ignored(
    status: str, world: World, context: Context
) -> None:
    event = change(TrainingJobStatus=status, Tags={"team": "vision"})
    assert handler(event, context) == {"job": JOB, "done": "ignored"}
    assert world.ledger.load(JOB) is None


def test_a_job_without_a_tag_whose_script_sends_data_is_not_ignored(
    world: World, context: Context
) -> None:
    world.manifest()
    world.pipeline().notice(world.steps(0, obs(0)))
    event = change(TrainingJobStatus="Failed", Tags={})
    assert handler(event, context)["done"] == "closed"


def test_where_the_event_leaves_tags_out_sagemaker_is_asked(world: World, context: Context) -> None:
    event = change()
    del event["detail"]["Tags"]
    assert handler(event, context)["done"] == "ignored"
    world.training.add(training_job())
    assert handler(event, context)["done"] == "ignored"
    world.training.add(replace(training_job(), tags={"trainwarden:rules": "default"}))
    assert handler(event, context)["done"] == "opened"


def test_what_the_seal_is_made_of_comes_from_the_description_not_from_the_event(
    world: World, context: Context
) -> None:
    world.training.add(training_job(stop="allow", nonce="n1"))
    event = change(HyperParameters={}, Tags={"trainwarden:stop": "allow"})
    handler(event, context)
    world.pipeline().notice(world.sagemaker_manifest(nonce="n1"))
    assert world.progress()["sealed"] == fingerprint(world.seal)


def test_a_misspelt_tag_still_makes_the_job_ours_so_that_it_can_be_told(
    world: World, context: Context
) -> None:
    world.sagemaker_manifest()
    event = change(Tags={"trainwarden:rulez": "default"})
    assert handler(event, context)["done"] == "opened"
    (opened,) = world.events("Job Opened")
    assert [problem["nearest"] for problem in opened["problems"]] == ["trainwarden:rules"]
