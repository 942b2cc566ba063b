"""The neutral interface of the detection benchmark, for programs of which none is ill."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from programs import batches, call, digits, fit, table, text, wave  # type: ignore[import-not-found]  # noqa: E402

__all__ = ["batches", "digits", "fit", "run_program", "table", "text", "wave"]


def run_program(module: str, hook: Any, variant: str, seed: int = 0) -> None:
    """Run ``module:function`` under ``hook``; there is only one variant, ``healthy``."""
    assert variant == "healthy"
    try:
        call(module, seed, hook)
    finally:
        hook.on_end()
