"""The document that the hook polls."""

from __future__ import annotations

import json

import pytest

from trainwarden.errors import MalformedObjectError
from trainwarden.wire.control import MAX_CONTROL_BYTES, Control


def test_a_control_document_survives_the_way() -> None:
    control = Control(7, stop=True, reason="Überlauf", capture={"activations": {"every": 1}})
    assert Control.from_bytes(control.to_bytes()) == control
    assert json.loads(control.to_bytes())["stop"] is True


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "strict JSON"),
        (b"[]", "a JSON object"),
        (b'{"version":0,"stop":false,"reason":"","capture":{}}', "'version' as an integer"),
        (b'{"version":1,"stop":0,"reason":"","capture":{}}', "'stop' as true or false"),
        (b'{"version":1,"stop":true,"reason":"","capture":[]}', "'capture' as an object"),
        (b" " * (MAX_CONTROL_BYTES + 1), "of at most"),
    ],
)
def test_anything_else_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(MalformedObjectError, match=message):
        Control.from_bytes(body)
