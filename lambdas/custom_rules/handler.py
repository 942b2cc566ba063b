"""Question of the pipeline -> what custom rules say of a job's steps.

Runs code that is not ours: this function has no permission but to write its own log.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainwarden.custom.answering import answer
from trainwarden.custom.folder import load

FOLDER = Path(__file__).parents[2] / "rules"  # packed beside ``lambdas``
RULES = load(FOLDER)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda entry point."""
    del context
    found: dict[str, Any] = json.loads(answer(json.dumps(event).encode(), RULES))
    return found
