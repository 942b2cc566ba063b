from __future__ import annotations

import io
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.request import Request

import boto3
import pytest
from moto import mock_aws

from lambdas.emptier import handler as emptier

BUCKET = "inbox"
CONTEXT = SimpleNamespace(
    function_name="emptier",
    memory_limit_in_mb=128,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:emptier",
    aws_request_id="1",
    log_stream_name="the-log",
)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Request, Any]]:
    """What CloudFormation was told."""
    told: list[tuple[Request, Any]] = []

    def urlopen(request: Request, timeout: float) -> io.BytesIO:
        assert timeout > 0
        assert isinstance(request.data, bytes)
        told.append((request, json.loads(request.data)))
        return io.BytesIO()

    monkeypatch.setattr(emptier, "urlopen", urlopen)
    return told


def event(kind: str, bucket: str = BUCKET) -> dict[str, Any]:
    return {
        "RequestType": kind,
        "ResponseURL": "https://cloudformation.example/answer?signature=1",
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "Contents",
        "ResourceProperties": {"BucketName": bucket},
    }


def keys(s3: Any) -> list[str]:
    return [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def test_deletion_leaves_no_object_however_many_there_are(s3: Any, answers: list[Any]) -> None:
    for number in range(1_050):  # more than one page
        s3.put_object(Bucket=BUCKET, Key=f"jobs/a/steps/0000/{number:010d}.tw", Body=b"")
    emptier.handler(event("Delete"), CONTEXT)
    assert keys(s3) == []
    ((request, body),) = answers
    assert body["Status"] == "SUCCESS"
    assert body["PhysicalResourceId"] == BUCKET
    assert (request.method, request.full_url) == ("PUT", event("Delete")["ResponseURL"])
    assert request.get_header("Content-type") == ""  # what the address is signed for


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_nothing_else_deletes_anything(s3: Any, answers: list[Any], kind: str) -> None:
    s3.put_object(Bucket=BUCKET, Key="jobs/a/manifest.tw", Body=b"")
    emptier.handler(event(kind), CONTEXT)
    assert keys(s3) == ["jobs/a/manifest.tw"]
    assert answers[0][1]["Status"] == "SUCCESS"


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_gone_is_empty(answers: list[Any]) -> None:
    emptier.handler(event("Delete", "gone"), CONTEXT)
    assert answers[0][1]["Status"] == "SUCCESS"


def test_a_failure_is_answered_too_or_the_stack_would_wait(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    emptier.handler(event("Delete"), CONTEXT)
    assert answers[0][1]["Status"] == "FAILED"
    assert "credentials" in answers[0][1]["Reason"]
