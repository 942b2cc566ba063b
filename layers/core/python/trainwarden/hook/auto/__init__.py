"""Watching without a line in the script: what a framework is asked to train is found and watched.

``TRAINWARDEN_AUTO`` turns it on, when the interpreter starts: ``1``, or the options of ``watch`` as
a JSON object. ``trainwarden run`` sets it. Nothing is imported before the script imports it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from trainwarden.hook.auto import imports
from trainwarden.hook.saying import say

VARIABLE = "TRAINWARDEN_AUTO"
_OFF = frozenset({"", "0", "false", "no", "off"})


def activate(environ: Mapping[str, str] = os.environ) -> bool:
    """Wait for frameworks if the environment asks for it; True if it does. May be called again."""
    text = environ.get(VARIABLE, "").strip()
    if text.lower() in _OFF:
        return False
    options = _options(text)

    def torch() -> None:
        from trainwarden.hook.auto.modules import TORCH

        TORCH.wait(options)

    def xgboost() -> None:
        from trainwarden.hook.auto import boosted

        boosted.xgboost(options)

    def lightgbm() -> None:
        from trainwarden.hook.auto import boosted

        boosted.lightgbm(options)

    def keras() -> None:
        from trainwarden.hook.auto.fits import watch_fits

        watch_fits(options)

    imports.after({"torch": torch, "xgboost": xgboost, "lightgbm": lightgbm, "keras": keras})
    return True


def _options(text: str) -> dict[str, Any]:
    if not text.startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        say(f"{VARIABLE}: expected 1, or the options of watch as a JSON object: {error}")
        return {}
    return dict(found)
