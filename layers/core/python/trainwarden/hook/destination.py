"""Opens what a ``Place`` names as an object store. Called in the background: it may be slow."""

from __future__ import annotations

import os
from typing import Any

from trainwarden.errors import BadInputError
from trainwarden.hook.config import Place
from trainwarden.store.folder import FolderObjects
from trainwarden.store.ports import ObjectStore

BUCKET_PARAMETER = "/trainwarden/bucket"
_TIMEOUT_S = 10


def open_store(place: Place) -> ObjectStore:
    """Open the bucket or folder that ``place`` names.

    Raises:
        RetryableError: AWS is unreachable or throttles, or credentials are not there yet.
        BadInputError: no destination, or boto3 is missing.
    """
    out = place.out
    if out and not out.startswith("s3://"):
        return FolderObjects(out)
    if not out:
        out = _from_account() or place.fallback
    if not out:
        raise BadInputError(
            "a bucket",
            f"no out=, TRAINWARDEN_OUT or SSM parameter {BUCKET_PARAMETER}",
            "deploy Trainwarden into this account and region, or pass out='s3://bucket'",
        )
    from trainwarden.store.s3 import S3Objects

    return S3Objects(out.removeprefix("s3://"), _client("s3"))


def _client(service: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise BadInputError("boto3", "it is not installed", "pip install boto3") from error
    from trainwarden.store.aws_errors import translated

    # Retries are the uploader's: its thread waits longer between them than botocore does.
    settings = Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": 2},
    )
    with translated(f"make a client for {service}", permission=""):
        # boto3 itself reads AWS_DEFAULT_REGION only; Lambda, SageMaker and AWS's CLI know both.
        region = os.environ.get("AWS_REGION") or None
        session: Any = boto3.session.Session(region_name=region)  # stubs know literals only
        return session.client(service, config=settings)


def _from_account() -> str:
    """Ask SSM for the deployed bucket; empty if the account has none or does not say."""
    client = _client("ssm")
    from botocore.exceptions import ClientError

    from trainwarden.store.aws_errors import code_of, translated

    with translated(f"read the SSM parameter {BUCKET_PARAMETER}", permission="ssm:GetParameter"):
        try:
            return f"s3://{client.get_parameter(Name=BUCKET_PARAMETER)['Parameter']['Value']}"
        except ClientError as error:
            if code_of(error) in {"ParameterNotFound", "AccessDeniedException"}:
                return ""
            raise
