"""Reads the e-mails and SMS that the embedded AWS kept instead of sending them."""

from __future__ import annotations

import json
from pathlib import Path

from trainwarden.embedded.launcher import OUTBOX
from trainwarden.model import Json


def messages(state: Path) -> list[dict[str, Json]]:
    """Return every message so far, oldest first: protocol, to, subject, message, attributes."""
    file = state / OUTBOX
    if not file.is_file():
        return []
    lines = file.read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if line]
