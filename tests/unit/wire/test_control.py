"""The document that the hook polls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainwarden.errors import BadInputError, MalformedObjectError
from trainwarden.wire.control import MAX_CONTROL_BYTES, MAX_REQUESTS, Control, DetailRequest

HEAD = b'{"version":1,"stop":true,"reason":"","capture":'
ASKED: dict[str, Any] = {"id": "a", "steps": 1, "interval": 1, "tensors": [], "raw": True}


def test_a_control_document_survives_the_way() -> None:
    request = DetailRequest("Overfit-1", 20, 2, ("gradient/fc1.*", "fc1.bias"), raw=False)
    details = (request, DetailRequest("b"))
    control = Control(7, stop=True, reason="Überlauf", details=details, stop_version=6)
    assert Control.from_bytes(control.to_bytes()) == control
    assert json.loads(control.to_bytes())["stop"] is True


def test_nothing_captured_is_what_it_always_was() -> None:
    assert json.loads(Control(1, stop=True).to_bytes())["capture"] == {}
    assert Control.from_bytes(HEAD + b'{"other":1}}').details == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "strict JSON"),
        (b"[]", "a JSON object"),
        (b'{"version":0,"stop":false,"reason":"","capture":{}}', "'version' as an integer"),
        (b'{"version":1,"stop":0,"reason":"","capture":{}}', "'stop' as true or false"),
        (HEAD + b"[]}", "'capture' as an object"),
        (b" " * (MAX_CONTROL_BYTES + 1), "of at most"),
    ],
)
def test_anything_else_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(MalformedObjectError, match=message):
        Control.from_bytes(body)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": ""},
        {"id": "two words"},
        {"steps": 0},
        {"steps": 1_001},
        {"interval": 0},
        {"tensors": ["*****"]},
        {"tensors": [""]},
        {"tensors": ["a", "a"]},
        {"tensors": [str(number) for number in range(17)]},
        {"raw": 1},
    ],
    ids=str,
)
def test_a_request_without_bounds_is_refused(wrong: dict[str, Any]) -> None:
    body = HEAD + json.dumps({"requests": [{**ASKED, **wrong}]}).encode() + b"}"
    with pytest.raises(MalformedObjectError):
        Control.from_bytes(body)


def test_more_requests_than_a_run_honours_are_refused() -> None:
    many = tuple(DetailRequest(str(number)) for number in range(MAX_REQUESTS + 1))
    with pytest.raises(MalformedObjectError, match=f"at most {MAX_REQUESTS}"):
        Control.from_bytes(Control(1, details=many).to_bytes())
    with pytest.raises(BadInputError, match="steps from 1 to 1000"):
        DetailRequest("a", steps=10**9)


@pytest.mark.parametrize(
    ("name", "tensor", "meant"),
    [
        ("fc1.weight", "fc1.weight", True),
        ("fc1.weight", "gradient/fc1.weight", False),
        ("*fc1.weight", "gradient/fc1.weight", True),
        ("fc1*", "fc10.weight", True),
        ("fc1.*", "fc1xweight", False),
        ("a[0]+", "a[0]+", True),
        ("*", "any\nname", True),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_is_special(
    name: str, tensor: str, *, meant: bool
) -> None:
    assert DetailRequest("a", tensors=(name,)).suspects(tensor) is meant
