"""Custom rules in a Lambda function."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import ReadTimeoutError

from trainwarden.errors import BadInputError, RetryableError
from trainwarden.store.aws_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

MAX_ANSWER_BYTES = 6 * 1024 * 1024
PAUSES_S = (0.2, 1.0)  # after a throttled call; then the rules get an error


class FunctionCustomRules:
    """``CustomRules`` over the Lambda API.

    Args:
        name: Name of the function.
        client: A boto3 Lambda client that does not retry by itself; its read timeout is longer
            than the function's.
        sleep: Waits, in seconds.
    """

    def __init__(
        self, name: str, client: LambdaClient, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._name, self._client, self._sleep = name, client, sleep

    def ask(self, question: bytes) -> bytes:
        """Invoke the function; again where it was throttled.

        Raises:
            RetryableError: throttled or unreachable, again and again.
            BadInputError: it crashed, took too long or is not there.
        """
        for pause in PAUSES_S:
            try:
                return self._invoke(question)
            except RetryableError:  # noqa: PERF203 - at most twice
                self._sleep(pause)
        return self._invoke(question)

    def _invoke(self, question: bytes) -> bytes:
        with translated("invoke the function of custom rules", permission="lambda:InvokeFunction"):
            try:
                found = self._client.invoke(FunctionName=self._name, Payload=question)
                body: bytes = found["Payload"].read(MAX_ANSWER_BYTES + 1)
            except ReadTimeoutError as exc:
                raise BadInputError("an answer of custom rules", "none in time") from exc
        if found.get("FunctionError"):
            raise BadInputError("an answer of custom rules", _said(body))
        return body


def _said(body: bytes) -> str:
    """Return the error that a function reports, as far as it can be read."""
    try:
        error = json.loads(body)
        return f"{error.get('errorType', '')}: {error.get('errorMessage', '')}".strip(": ")[:300]
    except (ValueError, AttributeError, RecursionError):
        return "an error that cannot be read"
