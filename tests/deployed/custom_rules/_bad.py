"""Ways of being bad; a module beside the rules, without rules in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any


def _raise() -> Any:
    raise ZeroDivisionError("the moon is full")


def _loop() -> Any:
    while True:
        pass


def _hang() -> Any:
    """Refuses to be interrupted from within."""
    while True:
        with suppress(BaseException):
            _loop()


def _die() -> Any:
    os._exit(3)


WAYS: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "raise": _raise,
        "garbage": object,
        "loop": _loop,
        "hang": _hang,
        "die": _die,
    }
)
