"""What every TrainingJobs promises, and how SageMaker's answers are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from trainwarden.errors import BadInputError, RetryableError
from trainwarden.store.memory import MemoryTrainingJobs
from trainwarden.store.ports import TrainingJob, TrainingJobs
from trainwarden.store.sagemaker import SageMakerJobs

NAME = "resnet50-2026"
ARN = f"arn:aws:sagemaker:eu-central-1:123456789012:training-job/{NAME}"
BARE = TrainingJob(name=NAME, arn=ARN, status="InProgress", instance="ml.g5.xlarge")
FULL = replace(
    BARE,
    status="Failed",
    secondary_status="Failed",
    tags={"trainwarden:stop": "allow", "team": "vision"},
    hyperparameters={"lr": "0.1"},
    debug_hook={"S3OutputPath": "s3://bucket/debug"},
    debug_rules=(
        {
            "RuleConfigurationName": "Overfit",
            "RuleEvaluatorImage": "image",
            "RuleParameters": {"rule_to_invoke": "Overfit"},
        },
    ),
    failure="AlgorithmError",
)
Given = Callable[[TrainingJob], TrainingJobs]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with Stubber(boto3.client("sagemaker", region_name="eu-central-1")) as stubber:
        yield stubber
    stubber.assert_no_pending_responses()


def describe(stub: Any, job: TrainingJob) -> None:
    """Let SageMaker describe a job as it does: what is empty is absent."""
    optional = {
        "HyperParameters": job.hyperparameters,
        "DebugHookConfig": job.debug_hook,
        "DebugRuleConfigurations": list(job.debug_rules),
        "FailureReason": job.failure,
    }
    answer: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary_status,
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/model"},
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"VolumeSizeInGB": 1, "InstanceType": job.instance},
        "StoppingCondition": {},
        "CreationTime": datetime(2026, 11, 30, tzinfo=timezone.utc),
        **{name: value for name, value in optional.items() if value},
    }
    stub.add_response("describe_training_job", answer, {"TrainingJobName": job.name})


def list_tags(stub: Any, job: TrainingJob) -> None:
    """One tag a page, as if there were many."""
    tags = [{"Key": key, "Value": value} for key, value in job.tags.items()]
    pages = [[tag] for tag in tags] or [[]]
    for number, page in enumerate(pages):
        request: dict[str, Any] = {"ResourceArn": job.arn}
        if number:
            request["NextToken"] = f"page{number}"
        answer: dict[str, Any] = {"Tags": page}
        if number + 1 < len(pages):
            answer["NextToken"] = f"page{number + 1}"
        stub.add_response("list_tags", answer, request)


@pytest.fixture(params=["memory", "sagemaker"])
def given(request: pytest.FixtureRequest) -> Given:
    if request.param == "memory":
        return lambda job: MemoryTrainingJobs([job])
    stub: Any = request.getfixturevalue("stub")

    def make(job: TrainingJob) -> TrainingJobs:
        describe(stub, job)
        list_tags(stub, job)
        return SageMakerJobs(stub.client)

    return make


@pytest.mark.parametrize("job", [BARE, FULL], ids=["bare", "full"])
def test_a_job_is_described_with_all_of_its_tags(given: Given, job: TrainingJob) -> None:
    assert given(job).describe(NAME) == job


def test_a_job_may_be_described_anew() -> None:
    jobs = MemoryTrainingJobs([BARE])
    jobs.add(FULL)
    assert jobs.describe(NAME) == FULL
    assert jobs.describe("resnet50") is None


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ValidationException", "Requested resource not found."),
        ("ResourceNotFound", "Training job does not exist."),
    ],
)
def test_an_unknown_job_is_none(stub: Any, code: str, message: str) -> None:
    stub.add_client_error("describe_training_job", code, message)
    assert SageMakerJobs(stub.client).describe(NAME) is None


def test_a_job_that_vanishes_before_its_tags_are_read_is_none(stub: Any) -> None:
    describe(stub, BARE)
    stub.add_client_error("list_tags", "ValidationException", "Requested resource not found.")
    assert SageMakerJobs(stub.client).describe(NAME) is None


@pytest.mark.parametrize(
    ("code", "message", "error", "said"),
    [
        ("ThrottlingException", "Rate exceeded", RetryableError, "Rate exceeded"),
        ("AccessDeniedException", "no", BadInputError, "allow sagemaker:DescribeTrainingJob"),
        ("ValidationException", "1 validation error", BadInputError, "1 validation error"),
    ],
)
def test_other_errors_are_not_taken_for_an_unknown_job(
    stub: Any, code: str, message: str, error: type[Exception], said: str
) -> None:
    stub.add_client_error("describe_training_job", code, message)
    with pytest.raises(error, match=said):
        SageMakerJobs(stub.client).describe(NAME)
