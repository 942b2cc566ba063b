from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.response import StreamingBody
from botocore.stub import Stubber

from trainwarden.errors import BadInputError, MalformedObjectError, RetryableError
from trainwarden.store.s3 import S3Objects

KEY = "jobs/demo/manifest.tw"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with Stubber(boto3.client("s3", region_name="us-east-1")) as stubber:
        yield stubber
    stubber.assert_no_pending_responses()


@pytest.fixture
def objects(stub: Any) -> S3Objects:
    return S3Objects("bucket", stub.client)


class Raising:
    """A client that cannot reach anything."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, _name: str) -> Any:
        def call(**_request: Any) -> Any:
            raise self._error

        return call


class Unreadable(io.RawIOBase):
    """A body that must be closed, and never read."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError(f"read {size} bytes of a body that is too large")


def test_the_body_of_a_too_large_object_is_closed_and_never_read(
    objects: S3Objects, stub: Any
) -> None:
    raw: Any = Unreadable()
    body = StreamingBody(raw, 10**12)
    stub.add_response("get_object", {"Body": body, "ContentLength": 10**12})
    with pytest.raises(MalformedObjectError, match="at most 100 bytes, found 1000000000000 bytes"):
        objects.get(KEY, max_bytes=100)
    assert raw.closed


def test_a_body_that_breaks_off_is_worth_a_retry(objects: S3Objects, stub: Any) -> None:
    body = StreamingBody(io.BytesIO(b"half"), 8)
    stub.add_response("get_object", {"Body": body, "ContentLength": 8})
    with pytest.raises(RetryableError, match=f"cannot read s3://bucket/{KEY} now"):
        objects.get(KEY, max_bytes=100)


def test_only_a_missing_key_is_none(objects: S3Objects, stub: Any) -> None:
    stub.add_client_error("get_object", "NoSuchKey", http_status_code=404)
    assert objects.get(KEY, max_bytes=100) is None
    stub.add_client_error("get_object", "NoSuchBucket", http_status_code=404)
    with pytest.raises(BadInputError, match="check the bucket's name"):
        objects.get(KEY, max_bytes=100)


def test_a_denied_read_is_no_missing_object_and_names_the_permissions(
    objects: S3Objects, stub: Any
) -> None:
    stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
    with pytest.raises(BadInputError, match="allow s3:GetObject and s3:ListBucket"):
        objects.get(KEY, max_bytes=100)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("SlowDown", 503),
        ("ServiceUnavailable", 503),
        ("InternalError", 500),
        ("RequestTimeout", 400),
        ("ExpiredToken", 400),
        ("KMS.ThrottlingException", 400),
        ("SomethingNew", 502),
        ("SomethingNew", 429),
    ],
)
def test_throttles_and_faults_are_worth_a_retry(
    objects: S3Objects, stub: Any, code: str, status: int
) -> None:
    for operation in ("get_object", "put_object", "list_objects_v2"):
        stub.add_client_error(operation, code, http_status_code=status)
    with pytest.raises(RetryableError, match=code):
        objects.get(KEY, max_bytes=100)
    with pytest.raises(RetryableError, match=code):
        objects.put(KEY, b"")
    with pytest.raises(RetryableError, match=code):
        list(objects.keys("jobs/"))


@pytest.mark.parametrize(
    ("code", "status", "remedy"),
    [
        ("AccessDenied", 403, "allow s3:PutObject to the role"),
        ("NoSuchBucket", 404, "is trainwarden deployed there"),
        ("PermanentRedirect", 301, "AWS_REGION"),
        ("InvalidAccessKeyId", 403, "check the credentials"),
        ("RequestTimeTooSkewed", 403, "set this machine's clock"),
        ("EntityTooLarge", 400, "EntityTooLarge"),
    ],
)
def test_what_is_refused_for_ever_says_what_to_do(
    objects: S3Objects, stub: Any, code: str, status: int, remedy: str
) -> None:
    stub.add_client_error("put_object", code, http_status_code=status)
    with pytest.raises(BadInputError, match=remedy) as caught:
        objects.put(KEY, b"")
    assert caught.value.__cause__ is not None
    assert code in caught.value.found


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (EndpointConnectionError(endpoint_url="https://s3"), RetryableError),
        (ConnectTimeoutError(endpoint_url="https://s3"), RetryableError),
        (ReadTimeoutError(endpoint_url="https://s3"), RetryableError),
        (NoCredentialsError(), BadInputError),
        (NoRegionError(), BadInputError),
        (ParamValidationError(report="bad bucket"), BadInputError),
    ],
)
def test_errors_before_any_answer_are_translated_too(
    cause: Exception, error: type[Exception]
) -> None:
    client: Any = Raising(cause)
    objects = S3Objects("bucket", client)
    with pytest.raises(error) as caught:
        objects.put(KEY, b"")
    assert caught.value.__cause__ is cause
    with pytest.raises(error):
        objects.get(KEY, max_bytes=1)
    with pytest.raises(error):
        list(objects.keys("jobs/"))


def test_pages_follow_the_token_and_after_is_sent_to_s3(objects: S3Objects, stub: Any) -> None:
    asked = {"Bucket": "bucket", "Prefix": "jobs/", "StartAfter": "jobs/a"}
    stub.add_response(
        "list_objects_v2",
        {"Contents": [{"Key": "jobs/b"}], "IsTruncated": True, "NextContinuationToken": "t"},
        asked,
    )
    stub.add_response("list_objects_v2", {"IsTruncated": False}, asked | {"ContinuationToken": "t"})
    assert list(objects.keys("jobs/", after="jobs/a")) == ["jobs/b"]
