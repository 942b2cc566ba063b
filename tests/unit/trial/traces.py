"""The recorded traces that tests read, and what SageMaker Debugger's own reader made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from trainwarden.model import Json, Observation
from trainwarden.trial import Trial, open_trial
from trainwarden.trial.observations import observations

FOLDER = Path(__file__).parents[2] / "data" / "smdebug"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def read(name: str) -> Trial:
    return open_trial(FOLDER / name)


@lru_cache(maxsize=32)
def reduced(name: str) -> Sequence[Observation]:
    """Observations as SageMaker Debugger's rules see the trace."""
    return tuple(observations(read(name), truncated=True))


def reference(name: str) -> Json:
    return json.loads((FOLDER / f"{name}.trial.json").read_text(encoding="utf-8"))


def verdicts() -> Json:
    return json.loads((FOLDER / "verdicts.json").read_text(encoding="utf-8"))
