"""The border to AWS: botocore's errors become ours, split by what the caller does next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.exceptions import ConnectionError as AwsConnectionError

from trainwarden.errors import BadInputError, RetryableError, TrainwardenError

# S3, DynamoDB and SageMaker each have their own words for "too fast" and "not now".
_LATER = frozenset(
    {
        "BandwidthLimitExceeded",
        "ExpiredToken",  # clients with a role fetch new credentials for the next call
        "ExpiredTokenException",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "OperationAborted",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "403", "Forbidden"})
_LOGIN = "check the credentials: `aws sts get-caller-identity` must work in the same environment"
_REMEDY = {
    "NoSuchBucket": "check the bucket's name and the account: is trainwarden deployed there?",
    "ResourceNotFoundException": "check name, region and account: is trainwarden deployed there?",
    "PermanentRedirect": "the bucket lies in another region: set AWS_REGION to that one",
    "AuthorizationHeaderMalformed": "the bucket lies in another region: set AWS_REGION to that one",
    "IllegalLocationConstraintException": "set AWS_REGION to the bucket's region",
    "InvalidAccessKeyId": _LOGIN,
    "SignatureDoesNotMatch": _LOGIN,
    "UnrecognizedClientException": _LOGIN,
    "InvalidClientTokenId": _LOGIN,
    "RequestTimeTooSkewed": "set this machine's clock",
    "KMS.DisabledException": "enable the KMS key, or configure another one",
    "KMS.NotFoundException": "restore the KMS key, or configure another one",
}


def code_of(exc: ClientError) -> str:
    """Return the service's own word for the error, empty if it gave none."""
    return str(exc.response.get("Error", {}).get("Code", ""))


@contextmanager
def translated(what: str, *, permission: str) -> Iterator[None]:
    """Turn botocore's errors into ours.

    Args:
        what: What was tried, for the message: ``read s3://bucket/key``.
        permission: The IAM actions it needs, named when access is denied.

    Raises:
        RetryableError: throttled, unreachable, or a fault on AWS's side.
        BadInputError: refused for ever, with what to do.
    """
    try:
        yield
    except ClientError as exc:
        raise of_client(exc, what, permission=permission) from exc
    except (
        AwsConnectionError,
        HTTPClientError,
        IncompleteReadError,
        CredentialRetrievalError,
        MetadataRetrievalError,
    ) as exc:
        raise RetryableError(f"cannot {what} now: {exc}") from exc
    except BotoCoreError as exc:
        raise BadInputError(f"to {what}", _said(exc), _remedy_of(exc)) from exc


def of_client(exc: ClientError, what: str, *, permission: str) -> TrainwardenError:
    """Return our error for what a service answered; arguments as ``translated``."""
    code = code_of(exc)
    status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    said = f"{code}: {exc.response.get('Error', {}).get('Message', '')}"
    if code in _DENIED:
        return BadInputError(f"to {what}", said, f"allow {permission} to the role that runs this")
    if code in _LATER or code.endswith("ThrottlingException") or status >= 500 or status == 429:  # noqa: PLR2004 - HTTP
        return RetryableError(f"cannot {what} now: {said}")
    return BadInputError(f"to {what}", said, _REMEDY.get(code, ""))


def _said(exc: BotoCoreError) -> str:
    return f"{type(exc).__name__}: {exc}"


def _remedy_of(exc: BotoCoreError) -> str:
    if isinstance(exc, NoRegionError):
        return "set AWS_REGION"
    if isinstance(exc, (NoCredentialsError, PartialCredentialsError, ProfileNotFound)):
        return _LOGIN
    return ""
