"""Durations and shares as people write them: ``30m``, ``1h30m``, ``50%``."""

from __future__ import annotations

import re
from enum import Enum

from trainwarden.errors import ConfigError
from trainwarden.model import Json
from trainwarden.rules import Parameter

_SECONDS = {"d": 86_400, "h": 3_600, "min": 60, "m": 60, "s": 1}
_PART = r"(\d+(?:\.\d+)?)\s?(d|h|min|m|s)"
_DURATION = re.compile(rf"(?:{_PART})+")
MAX_CHARS = 32  # of a number with a unit
_UP_TO_ONE = re.compile(r"<=? 1$")
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s?(?:%|percent)")


class Unit(Enum):
    """What a parameter's number counts, as far as it can be written with a unit."""

    SECONDS = "seconds, or a duration like 30m"
    PERCENT = "percent, or a number with % like 50%"
    SHARE = "a share from 0 to 1, or a number with % like 50%"
    NONE = "a plain number"


def unit_of(parameter: Parameter) -> Unit:
    """Return the parameter's unit, ``NONE`` for one that is never written."""
    unit = parameter.unit.lower()
    if unit in {"s", "seconds"} or parameter.name.endswith("_s"):
        return Unit.SECONDS
    if unit.startswith(("percent", "%")):
        return Unit.PERCENT
    within_one = _UP_TO_ONE.search(parameter.range) or "ratio" in parameter.name
    if parameter.type.startswith("float") and not unit and within_one:
        return Unit.SHARE
    return Unit.NONE


def read(raw: Json, unit: Unit) -> Json:
    """Return text with a unit as the number it means; anything else as it came.

    Raises:
        ConfigError: a unit that this parameter does not have.
    """
    if not isinstance(raw, str) or len(raw) > MAX_CHARS:
        return raw
    written = raw.strip()
    if match := _PERCENT.fullmatch(written):
        if unit is Unit.PERCENT:
            return float(match[1])
        if unit is Unit.SHARE:
            return float(match[1]) / 100
        raise ConfigError(unit.value, repr(raw))
    if _DURATION.fullmatch(written):
        if unit is Unit.SECONDS:
            return sum(float(n) * _SECONDS[u] for n, u in re.findall(_PART, written))
        raise ConfigError(unit.value, repr(raw))
    return raw
