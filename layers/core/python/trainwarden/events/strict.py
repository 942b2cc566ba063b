"""Anything a rule may put into its evidence → strict JSON of bounded size.

JSON knows no NaN and no infinities; they travel as the strings ``NaN``, ``Infinity`` and
``-Infinity``, which ``float()`` of most languages reads back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from trainwarden.model import Json

# EventBridge, SQS and Step Functions take 256 KiB; a commit's events share one 400 KiB item.
MAX_EVENT_BYTES = 16 * 1024
_MIN_KEYS = 8  # our own nested objects (a problem, a verdict, an action) are never cut
_MAX_INT = 2**53  # beyond it readers in other languages round silently


class Limits(NamedTuple):
    """Most characters of a string, items of a list or mapping, and levels of nesting."""

    chars: int
    items: int
    depth: int = 8


# Tried in turn until the event fits: the same event is always cut the same way.
STAGES = (Limits(2_000, 100), Limits(800, 40), Limits(300, 16), Limits(120, 6), Limits(60, 2))


def number(value: float) -> Json:
    """Return a finite number as itself, NaN and ±inf by name."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def text(value: str, chars: int) -> str:
    """Return ``value`` as valid Unicode of at most ``chars`` characters."""
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= chars else clean[: chars - 1] + "…"


def plain(value: object, limits: Limits = STAGES[0]) -> Json:
    """Return ``value`` as strict JSON; what has no JSON form becomes its text."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return _mapping(value, limits) if limits.depth else "…"
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return _list(value, limits) if limits.depth else "…"
    return _scalar(value, limits.chars)


def _mapping(value: Mapping[Any, object], limits: Limits) -> Json:
    pairs = list(value.items())[: max(limits.items, _MIN_KEYS)]
    inner = limits._replace(depth=limits.depth - 1)
    return {text(str(key), limits.chars): plain(item, inner) for key, item in pairs}


def _list(value: Sequence[object], limits: Limits) -> Json:
    inner = limits._replace(depth=limits.depth - 1)
    return [plain(item, inner) for item in value[: limits.items]]


def _scalar(value: object, chars: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_INT else _big(value)
    if isinstance(value, float):
        return number(float(value))
    return text(value if isinstance(value, str) else repr(value), chars)


def _big(value: int) -> Json:
    try:
        return float(value)
    except OverflowError:
        return "Infinity" if value > 0 else "-Infinity"


def dumps(value: Json) -> str:
    """Return strict, compact JSON; refuses NaN and infinities.

    Raises:
        ValueError: a NaN or infinity that did not go through ``plain``.
    """
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def size(value: Json) -> int:
    """Return the UTF-8 bytes of ``dumps(value)``."""
    return len(dumps(value).encode())


def _is_deeper(value: object, depth: int) -> bool:
    """Tell whether ``value`` nests deeper than ``plain`` follows."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return False
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in value)


def bounded(data: Mapping[str, object], budget: int) -> tuple[dict[str, Json], bool]:
    """Return ``data`` as strict JSON of at most ``budget`` bytes, and whether anything was cut.

    Every top-level key stays. Strings, lists and nested mappings get shorter stage by stage;
    in the end free-form mappings (evidence, details) go altogether.
    """
    whole = Limits(budget, budget)
    deep = any(_is_deeper(value, whole.depth) for value in data.values())
    fitted: dict[str, Json] = {}
    for stage in (whole, *STAGES):
        fitted = {key: plain(value, stage) for key, value in data.items()}
        if size(fitted) <= budget:
            return fitted, deep or stage is not whole
    last = {key: {} if isinstance(value, dict) else value for key, value in fitted.items()}
    return last, True
