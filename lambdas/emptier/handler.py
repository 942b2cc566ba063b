"""CloudFormation custom resource -> delete everything in a bucket when the stack is destroyed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from lambdas.shared import wiring

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> None:
    """Lambda entry point: always answers, or the stack would wait for an hour."""
    status, reason = "SUCCESS", ""
    try:
        if event["RequestType"] == "Delete":
            empty(event["ResourceProperties"]["BucketName"])
    except (BotoCoreError, ClientError) as exc:
        logger.exception("could not empty the bucket")
        status, reason = "FAILED", str(exc)
    respond(event, status, reason or context.log_stream_name)


def empty(bucket: str) -> None:
    """Delete all objects; a bucket that is gone already is empty."""
    client = wiring.client("s3")
    try:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            keys: list[ObjectIdentifierTypeDef] = [
                {"Key": item["Key"]} for item in page.get("Contents", [])
            ]
            if keys:
                client.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
    except client.exceptions.NoSuchBucket:
        logger.info("the bucket is gone already")


def respond(event: dict[str, Any], status: str, reason: str) -> None:
    """Tell CloudFormation how it went."""
    body = {key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")}
    body |= {
        "Status": status,
        "Reason": reason,
        "PhysicalResourceId": event["ResourceProperties"]["BucketName"],
    }
    request = Request(  # noqa: S310 (CloudFormation's own presigned address)
        event["ResponseURL"],
        json.dumps(body).encode(),
        {"Content-Type": ""},  # the address is signed for an empty one
        method="PUT",
    )
    urlopen(request, timeout=30).close()  # noqa: S310 (same)
