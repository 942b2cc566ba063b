"""The bucket. The client is passed in: its retries, timeouts and endpoint are the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainwarden.errors import ConflictError, MalformedObjectError
from trainwarden.store.aws_errors import code_of, translated

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Gone, changed before, or changed while it was written.
_CHANGED = frozenset({"NoSuchKey", "PreconditionFailed", "ConditionalRequestConflict"})


class S3Objects:
    """An ``ObjectStore`` in an S3 bucket.

    Args:
        bucket: Name of a general purpose bucket (directory buckets do not list in order).
        client: A boto3 S3 client.
    """

    def __init__(self, bucket: str, client: S3Client) -> None:
        self.bucket = bucket
        self._client = client

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the object, None if there is none.

        Raises:
            MalformedObjectError: larger than ``max_bytes``; its body was not read.
            RetryableError: throttled or unreachable, also half-way through the body.
            BadInputError: refused for ever: no such bucket, wrong region, access denied. S3 denies
                a *missing* key too unless ``s3:ListBucket`` is allowed.
        """
        needed = "s3:GetObject and s3:ListBucket"
        with translated(f"read s3://{self.bucket}/{key}", permission=needed):
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=key)
            except ClientError as exc:
                if code_of(exc) == "NoSuchKey":
                    return None
                raise
            with closing(answer["Body"]) as body:
                if answer["ContentLength"] > max_bytes:
                    raise MalformedObjectError(
                        f"an object of at most {max_bytes} bytes",
                        f"{answer['ContentLength']} bytes at {key}",
                    )
                return bytes(body.read())

    def put(self, key: str, body: bytes) -> None:
        """Write the object; S3 shows it whole or not at all.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such bucket, wrong region, access denied.
        """
        with translated(f"write s3://{self.bucket}/{key}", permission="s3:PutObject"):
            self._client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write the object if it is still ``before``; None: if there is none.

        S3 compares the ETag that was read with that of the moment.

        Raises:
            ConflictError: it is another one by now; nothing was written.
            RetryableError: throttled or unreachable.
            BadInputError: as ``put``.
        """
        what, needed = f"change s3://{self.bucket}/{key}", "s3:PutObject, s3:GetObject"
        with translated(what, permission=f"{needed} and s3:ListBucket"):
            try:
                condition: dict[str, Any] = {"IfNoneMatch": "*"}
                if before is not None:
                    answer = self._client.get_object(Bucket=self.bucket, Key=key)
                    with closing(answer["Body"]) as found:
                        if found.read(len(before) + 1) != before:
                            raise ConflictError(f"{key} was changed meanwhile")
                    condition = {"IfMatch": answer["ETag"]}
                self._client.put_object(Bucket=self.bucket, Key=key, Body=body, **condition)
            except ClientError as exc:
                if code_of(exc) in _CHANGED:
                    raise ConflictError(f"{key} was changed meanwhile") from exc
                raise

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield keys below ``prefix`` in ascending order, those > ``after`` only; 1,000 a request.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such bucket, wrong region, access denied.
        """
        request: dict[str, Any] = {"Bucket": self.bucket, "Prefix": prefix}
        if after:
            request["StartAfter"] = after
        while True:
            with translated(f"list s3://{self.bucket}/{prefix}", permission="s3:ListBucket"):
                page = self._client.list_objects_v2(**request)
            yield from (item["Key"] for item in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]
