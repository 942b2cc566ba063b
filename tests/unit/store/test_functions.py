"""The function of custom rules, as botocore answers for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import botocore.session
import pytest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError
from botocore.response import StreamingBody
from botocore.stub import Stubber

from trainwarden.errors import BadInputError, RetryableError
from trainwarden.store.functions import PAUSES_S, FunctionCustomRules


@pytest.fixture
def client() -> Any:
    session = botocore.session.Session()
    session.set_credentials("a", "b")
    once = Config(region_name="us-east-1", retries={"total_max_attempts": 1})
    made: BaseClient = session.create_client("lambda", config=once)
    return made


@pytest.fixture
def stubber(client: Any) -> Iterator[Stubber]:
    with Stubber(client) as found:
        yield found


def body(value: object) -> StreamingBody:
    text = json.dumps(value).encode()
    return StreamingBody(BytesIO(text), len(text))


def asked(client: Any) -> tuple[FunctionCustomRules, list[float]]:
    pauses: list[float] = []
    return FunctionCustomRules("custom", client, pauses.append), pauses


def test_the_answer_comes_as_it_is(client: Any, stubber: Stubber) -> None:
    expected = {"FunctionName": "custom", "Payload": b"{}"}
    stubber.add_response("invoke", {"StatusCode": 200, "Payload": body({"x": 1})}, expected)
    assert json.loads(asked(client)[0].ask(b"{}")) == {"x": 1}


def test_throttled_twice_it_is_asked_a_third_time(client: Any, stubber: Stubber) -> None:
    for _ in PAUSES_S:
        stubber.add_client_error("invoke", "TooManyRequestsException", http_status_code=429)
    stubber.add_response("invoke", {"StatusCode": 200, "Payload": body(1)})
    port, pauses = asked(client)
    assert port.ask(b"{}") == b"1"
    assert pauses == list(PAUSES_S)


def test_throttled_for_ever_it_may_be_tried_later(client: Any, stubber: Stubber) -> None:
    for _ in range(3):
        stubber.add_client_error("invoke", "ServiceException", http_status_code=500)
    with pytest.raises(RetryableError):
        asked(client)[0].ask(b"{}")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        pytest.param(
            {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 8 s"},
            "Sandbox.Timedout: Task timed out after 8 s",
            id="timeout",
        ),
        pytest.param(["?"], "an error that cannot be read", id="unreadable"),
    ],
)
def test_a_crash_is_no_answer(client: Any, stubber: Stubber, said: object, told: str) -> None:
    answer = {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": body(said)}
    stubber.add_response("invoke", answer)
    with pytest.raises(BadInputError, match=told):
        asked(client)[0].ask(b"{}")


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_a_function_that_may_not_be_asked_is_asked_once(
    client: Any, stubber: Stubber, code: str
) -> None:
    stubber.add_client_error("invoke", code, http_status_code=403)
    with pytest.raises(BadInputError):
        asked(client)[0].ask(b"{}")


def test_no_answer_in_time_is_not_waited_for_again(client: Any) -> None:
    calls: list[int] = []

    def late(**_: object) -> object:
        calls.append(1)
        raise ReadTimeoutError(endpoint_url="https://lambda")

    client.meta.events.register("before-send", late)
    with pytest.raises(BadInputError, match="none in time"):
        asked(client)[0].ask(b"{}")
    assert len(calls) == 1
