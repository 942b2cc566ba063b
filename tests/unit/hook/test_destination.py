"""What a place opens as: a folder, a bucket, the bucket that the account names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto import mock_aws

from tests.unit.hook.recording import QUICK, read
from trainwarden.errors import BadInputError, RetryableError
from trainwarden.hook.config import Place
from trainwarden.hook.destination import open_store
from trainwarden.hook.options import Options
from trainwarden.hook.session import Session
from trainwarden.model import Mode
from trainwarden.store.folder import FolderObjects
from trainwarden.store.s3 import S3Objects

BUCKET = "trainwarden-bucket"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An account with the bucket and the parameter that names it."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        client: Any = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield client


def place(out: str = "", fallback: str = "") -> Place:
    return Place(job="job", out=out, fallback=fallback, sagemaker=True)


def parameter(value: str = BUCKET) -> None:
    client: Any = boto3.client("ssm")
    client.put_parameter(Name="/trainwarden/bucket", Value=value, Type="String")


def save(destination: Place, said: list[str]) -> bool:
    session = Session(Options(), destination, framework="none", environment={}, limits=QUICK)
    session.uploader._report = said.append
    draft = session.draft(0, Mode.TRAIN, 0)
    draft.scalar("losses", "loss", 1.0)
    session.submit(draft)
    return session.close("finished", 30)


@pytest.mark.usefixtures("aws")
def test_the_region_is_read_where_sagemaker_and_the_aws_cli_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    store = open_store(place(f"s3://{BUCKET}"))
    assert isinstance(store, S3Objects)
    assert store._client.meta.region_name == "eu-west-3"


def test_a_folder_is_a_folder(tmp_path: Path) -> None:
    store = open_store(place(str(tmp_path)))
    assert isinstance(store, FolderObjects)
    assert store.root == tmp_path


@pytest.mark.usefixtures("aws")
def test_a_bucket_is_written_to(aws: Any) -> None:
    said = list[str]()
    assert save(place(f"s3://{BUCKET}"), said)
    store = S3Objects(BUCKET, aws)
    assert read(store).steps == [0]
    assert said == []


@pytest.mark.usefixtures("aws")
def test_without_a_destination_the_account_names_the_bucket() -> None:
    parameter()
    store = open_store(place(fallback="s3://other-bucket"))
    assert isinstance(store, S3Objects)
    assert store.bucket == BUCKET


@pytest.mark.usefixtures("aws")
def test_an_account_that_names_none_leaves_debuggers_bucket() -> None:
    store = open_store(place(fallback="s3://other-bucket"))
    assert isinstance(store, S3Objects)
    assert store.bucket == "other-bucket"


@pytest.mark.usefixtures("aws")
def test_no_destination_at_all_is_said_with_what_to_do() -> None:
    with pytest.raises(BadInputError, match="deploy Trainwarden"):
        open_store(place())


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_is_not_there_is_said_and_training_goes_on() -> None:
    said = list[str]()
    assert save(place("s3://no-such-bucket-anywhere"), said) is False
    assert "NoSuchBucket" in said[0]
    assert "is trainwarden deployed there?" in said[0]


def refuse(
    monkeypatch: pytest.MonkeyPatch, operation: str, code: str, status: int, times: int = 1000
) -> None:
    """Let AWS answer an operation with an error, so many times."""
    original: Any = BaseClient._make_api_call  # type: ignore[attr-defined]
    left = [times]

    def call(self: Any, name: str, request: Any) -> Any:
        if name == operation and left[0]:
            left[0] -= 1
            error = {"Code": code, "Message": "no"}
            answer: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(answer, name)
        return original(self, name, request)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("AccessDenied", 403, "allow s3:PutObject"),
        ("PermanentRedirect", 301, "AWS_REGION"),
        ("InvalidAccessKeyId", 403, "check the credentials"),
    ],
)
def test_what_s3_refuses_is_said_with_the_remedy(
    aws: Any, monkeypatch: pytest.MonkeyPatch, code: str, status: int, told: str
) -> None:
    refuse(monkeypatch, "PutObject", code, status)
    said = list[str]()
    assert save(place(f"s3://{BUCKET}"), said) is False
    assert any(told in text for text in said)
    assert aws.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0


def test_expired_credentials_are_tried_again(aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "PutObject", "ExpiredToken", 400, times=2)
    said = list[str]()
    assert save(place(f"s3://{BUCKET}"), said)
    assert read(S3Objects(BUCKET, aws)).steps == [0]
    assert said == []


@pytest.mark.usefixtures("aws")
def test_ssm_out_of_reach_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "GetParameter", "ThrottlingException", 400)
    with pytest.raises(RetryableError):
        open_store(place(fallback="s3://other-bucket"))


@pytest.mark.usefixtures("aws")
def test_a_role_that_may_not_ask_ssm_uses_debuggers_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "GetParameter", "AccessDeniedException", 400)
    store = open_store(place(fallback="s3://other-bucket"))
    assert isinstance(store, S3Objects)
    assert store.bucket == "other-bucket"


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(BadInputError, match="pip install boto3"):
        open_store(place("s3://bucket"))
