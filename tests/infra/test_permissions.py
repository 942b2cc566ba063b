from __future__ import annotations

from typing import Any

import pytest

from tests.infra.synthesis import Synthesis, listed, synthesize, walk

BUCKET = "<Inbox/Bucket>"
TABLE = "<Ledger/Table>"
OWN = {  # every function: its own log, and traces
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "xray:PutTraceSegments",
    "xray:PutTelemetryRecords",
}
COMMIT = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
READ = {"s3:GetObject", "s3:ListBucket"}
LOOK = {"sagemaker:DescribeTrainingJob", "sagemaker:ListTags"}
STREAM = {
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
    "dynamodb:ListStreams",
}
QUEUE = {
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueUrl",
    "sqs:GetQueueAttributes",
}
KEEP = {"sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"}  # dead letters
ALLOWED = {
    "Evaluator/Handler/Role": COMMIT | READ | LOOK | QUEUE,
    "Jobs/Handler/Role": COMMIT | READ | LOOK | KEEP,
    "Sweeper/Handler/Role": COMMIT | READ | LOOK | {"dynamodb:Query"} | KEEP,
    "Stop/Handler/Role": COMMIT | READ | LOOK | {"dynamodb:Query", "s3:PutObject"} | KEEP,
    "Announcer/Handler/Role": STREAM | {"events:PutEvents"} | KEEP,
    "Notifier/Handler/Role": {"sns:Publish", "kms:Decrypt", "kms:GenerateDataKey"} | KEEP,
}


def roles(stack: Synthesis) -> list[str]:
    return [path.removesuffix("/Resource") for path in stack.of("AWS::IAM::Role")]


@pytest.mark.parametrize("role", ALLOWED)
def test_each_function_may_do_this_and_nothing_else(stack: Synthesis, role: str) -> None:
    assert set(stack.actions(role)) - OWN == ALLOWED[role]


def test_every_function_is_listed_here(stack: Synthesis) -> None:
    assert {r for r in roles(stack) if r.endswith("Handler/Role")} == set(ALLOWED)


def test_no_action_is_a_wildcard(stack: Synthesis) -> None:
    for role in [*roles(stack), "TrainingAccess"]:
        for action in stack.actions(role):
            assert "*" not in action, f"{role}: {action}"


def test_no_role_takes_permissions_from_a_managed_policy(stack: Synthesis) -> None:
    for path, role in stack.of("AWS::IAM::Role").items():
        assert "ManagedPolicyArns" not in role["Properties"], path


def test_the_evaluator_reads_what_jobs_wrote_and_nothing_else_in_the_bucket(
    stack: Synthesis,
) -> None:
    allowed = stack.actions("Evaluator/Handler/Role")
    assert allowed["s3:GetObject"] == {f"{BUCKET}/jobs/*"}
    assert allowed["s3:ListBucket"] == {BUCKET}
    assert {a for a in allowed if a.startswith("s3:")} == READ


@pytest.mark.parametrize("role", [*ALLOWED, "TrainingAccess"])
def test_whoever_lists_the_bucket_lists_jobs_alone(stack: Synthesis, role: str) -> None:
    for statement in stack.statements(role):
        if "s3:ListBucket" in listed(statement["Action"]):
            # IfExists: a GET of an absent object asks without a prefix, and must end in 404.
            assert statement["Condition"] == {"StringLikeIfExists": {"s3:prefix": "jobs/*"}}


def test_only_the_sweeper_may_ask_for_open_jobs(stack: Synthesis) -> None:
    index = f"{TABLE}/index/open"
    asking = [r for r in ALLOWED if index in stack.actions(r).get("dynamodb:Query", set())]
    assert asking == ["Sweeper/Handler/Role"]


def test_no_function_may_stop_a_job_or_start_the_state_machine(stack: Synthesis) -> None:
    for role in ALLOWED:
        assert not {"sagemaker:StopTrainingJob", "states:StartExecution"} & set(stack.actions(role))


def test_a_training_role_writes_what_the_hook_writes_and_asks_no_job_to_stop(
    stack: Synthesis,
) -> None:
    allowed = stack.actions("TrainingAccess/Policy")
    assert allowed["s3:PutObject"] == {
        f"{BUCKET}/jobs/*/manifest.tw",
        f"{BUCKET}/jobs/*/steps/*",
        f"{BUCKET}/jobs/*/end/*",
        f"{BUCKET}/jobs/*/tensors/*",
    }
    assert allowed["s3:GetObject"] == {
        f"{BUCKET}/jobs/*/control.json",
        f"{BUCKET}/jobs/*/manifest.tw",
    }
    assert set(allowed) == {"s3:PutObject", "s3:GetObject", "s3:ListBucket", "ssm:GetParameter"}


def test_a_training_role_reads_the_one_parameter(stack: Synthesis) -> None:
    (parameter,) = stack.actions("TrainingAccess/Policy")["ssm:GetParameter"]
    assert parameter.endswith(":parameter<Inbox/BucketName>")


def test_a_training_role_is_not_told_what_others_captured(stack: Synthesis) -> None:
    readable = stack.actions("TrainingAccess/Policy")["s3:GetObject"]
    assert not any("steps" in resource or "tensors" in resource for resource in readable)


def test_the_emptier_exists_only_where_nothing_is_kept(stack: Synthesis) -> None:
    assert not [path for path in stack.of("AWS::IAM::Role") if path.startswith("Emptier")]
    allowed = synthesize(retain="false").actions("Emptier/Handler/Role")
    assert set(allowed) - OWN == {"s3:ListBucket", "s3:DeleteObject"}
    assert allowed["s3:DeleteObject"] == {f"{BUCKET}/*"}


def test_no_role_can_be_assumed_by_a_person_or_another_account(stack: Synthesis) -> None:
    for role in stack.of("AWS::IAM::Role").values():
        trust: Any = role["Properties"]["AssumeRolePolicyDocument"]
        principals = [v for v in walk(trust) if isinstance(v, dict) and "Service" in v]
        assert len(principals) == len(trust["Statement"])
        assert all(set(principal) == {"Service"} for principal in principals)
