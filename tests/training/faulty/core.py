"""The neutral interface of the detection benchmark, for programs with one fault and its repair."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from programs import call  # type: ignore[import-not-found]  # noqa: E402


def run_program(
    module: str, hook: Any, variant: str, seed: int = 0, steps: int | None = None
) -> None:
    """Run ``module:function`` under ``hook`` as ``faulty`` or as its ``healthy`` twin."""
    options = {} if steps is None else {"steps": steps}
    try:
        call(module, seed, hook, variant, **options)
    finally:
        hook.on_end()
