"""Parameters of a rule: its dataclass fields, how they are documented, cast and range-checked.

Values reach a rule from Python, from JSON or, as SageMaker passes them, as strings; all three end
here. A wrong name, type, range or regular expression is a ``ConfigError`` that says what was
expected.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, NamedTuple, TypeVar, get_type_hints

from trainwarden.errors import ConfigError
from trainwarden.model import Json, Rule, S

MAX_PATTERN_CHARS = 256
MAX_REPEATS = 6  # of a pattern: each may multiply the steps of a match by the name's length
_PLAIN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)  # escapes and classes
_PARTS = re.compile(r"\(\??|\||\)?\s*(?P<repeat>[*+?]|\{\d*,?\d*\})[?+]?|\)")
_TRUE, _FALSE = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})
_NONE = frozenset({"", "none", "null"})
T = TypeVar("T")


class Parameter(NamedTuple):
    """One parameter of a rule, for docs and for checking.

    ``type`` is ``float``, ``int``, ``bool``, ``str`` or ``list of str``, with `` or none`` where
    it may be left out; ``range`` is a phrase such as ``> 0 and <= 100``, empty if there is none.
    ``required`` parameters have no default at all.
    """

    name: str
    type: str
    default: Json
    doc: str
    unit: str = ""
    range: str = ""
    required: bool = False


class Bounds(NamedTuple):
    """The valid range of a number; None means no bound."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __str__(self) -> str:
        signs = {">=": self.ge, ">": self.gt, "<=": self.le, "<": self.lt}
        return " and ".join(
            f"{sign} {limit:g}" for sign, limit in signs.items() if limit is not None
        )

    def hold(self, value: float) -> bool:
        """Say whether ``value`` lies within."""
        return not (
            (self.ge is not None and value < self.ge)
            or (self.gt is not None and value <= self.gt)
            or (self.le is not None and value > self.le)
            or (self.lt is not None and value >= self.lt)
        )


def param(
    default: T,
    doc: str,
    unit: str = "",
    *,
    bounds: Bounds | None = None,
    choices: tuple[Json, ...] = (),
    pattern: bool = False,
) -> T:
    """Declare a parameter as a dataclass field.

    Args:
        default: Used when nothing is given.
        doc: One sentence; a period at its end.
        unit: Unit of the value.
        bounds: Valid range.
        choices: Valid values, if they can be listed.
        pattern: The value is one or more regular expressions.
    """
    declared: Any = field(
        default=default,
        metadata={
            "doc": doc,
            "unit": unit,
            "bounds": bounds or Bounds(),
            "choices": choices,
            "pattern": pattern,
        },
    )
    return declared  # type: ignore[no-any-return]


class CheckedRule(Rule[S]):
    """A rule whose parameters are range-checked however it was built."""

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            if one.metadata:
                _check(one, getattr(self, one.name))


def _types(cls: Any) -> Mapping[str, tuple[str, bool]]:
    """Field name → (type word, may it be None)."""
    hints = get_type_hints(cls)
    found: dict[str, tuple[str, bool]] = {}
    for one in fields(cls):
        text = str(hints[one.name])
        text = text if "|" in text or "tuple" in text else hints[one.name].__name__
        word = "list of str" if "tuple" in text else text.replace("None", "").strip(" |")
        found[one.name] = (word, "None" in text)
    return found


def parameters(cls: type[Rule[Any]]) -> list[Parameter]:
    """List a rule's parameters in the order they are declared."""
    listed, types = [], _types(cls)
    for one in fields(cls):  # type: ignore[arg-type]
        word, optional = types[one.name]
        default = None if one.default is MISSING else one.default
        meta = one.metadata
        allowed = " or ".join(str(c) for c in meta.get("choices", ())) or str(
            meta.get("bounds", "")
        )
        listed.append(
            Parameter(
                one.name,
                word + (" or none" if optional else ""),
                list(default) if isinstance(default, tuple) else default,
                str(meta.get("doc", "")),
                str(meta.get("unit", "")),
                allowed,
                one.default is MISSING and one.default_factory is MISSING,
            )
        )
    return listed


def cast(cls: type[Rule[Any]], given: Mapping[str, Json]) -> dict[str, Json]:
    """Cast ``given`` to the types of the rule's fields.

    Raises:
        ConfigError: a name the rule does not have, or a value that is not of the field's type.
    """
    types, values = _types(cls), {}
    for name, value in given.items():
        if name not in types:
            raise ConfigError(
                f"a parameter of {cls.meta.name} ({', '.join(types) or 'it has none'})",
                repr(name),
                nearest(name, types),
            )
        values[name] = _cast(name, value, *types[name])
    return values


def check_one(cls: type[Rule[Any]], name: str, value: Json) -> Json:
    """Cast and range-check one parameter, whatever the others are.

    Raises:
        ConfigError: as ``cast``, or a value out of range.
    """
    found = cast(cls, {name: value})[name]
    for one in fields(cls):  # type: ignore[arg-type]
        if one.name == name and one.metadata:
            _check(one, found)
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …?" with the nearest of ``known``, or an empty string."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean {by_lower[close[0]]}?" if close else ""


def _cast(name: str, value: Json, word: str, optional: bool) -> Json:  # noqa: FBT001 - private
    if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
        if optional:
            return None
        if word == "list of str":
            return ()
        raise _wrong(name, word, value)
    if word == "list of str":
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
            raise _wrong(name, "text separated by commas, or a list of text", value)
        return tuple(item.strip() for item in items if item.strip())
    if word == "bool":
        return _bool(name, value)
    if word == "str":
        if not isinstance(value, str):
            raise _wrong(name, "text", value)
        return value.strip()
    return _number(name, value, word)


def _bool(name: str, value: Json) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise _wrong(name, "true or false", value)
    return text in _TRUE


def _number(name: str, value: Json, word: str) -> float | int:
    kind = "a whole number" if word == "int" else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _wrong(name, kind, value)
    try:
        number = float(value)
    except ValueError:
        raise _wrong(name, kind, value) from None
    except OverflowError:
        raise _wrong(name, "a number that fits a float64", value) from None
    if not math.isfinite(number) or (word == "int" and not number.is_integer()):
        raise _wrong(name, kind, value)
    return int(number) if word == "int" else number


def _check(one: Field[Any], value: Json) -> None:
    bounds, choices = one.metadata["bounds"], one.metadata["choices"]
    if choices and value is not None and value not in choices:
        raise _wrong(one.name, " or ".join(str(c) for c in choices), value)
    if isinstance(value, (int, float)) and not bounds.hold(value):
        raise _wrong(one.name, f"a value {bounds}", value)
    if one.metadata["pattern"] and value is not None:
        for pattern in (value,) if isinstance(value, str) else value:
            _check_pattern(one.name, pattern)


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as exc:
        raise _wrong(name, f"a regular expression ({exc})", pattern) from exc
    if len(pattern) > MAX_PATTERN_CHARS or _explosive(pattern):
        raise _wrong(
            name,
            f"a regular expression of at most {MAX_PATTERN_CHARS} characters and {MAX_REPEATS} "
            "repeats (* + ? {}), without a repeated group that repeats or chooses inside",
            pattern,
        )


def _explosive(pattern: str) -> bool:
    """Say whether matching a valid pattern may go on for ever: patterns come from tags.

    A repeated group that repeats, or chooses with ``|``, matches a name in exponentially many ways.
    """
    busy, repeats = [False], 0  # of each open group: does it repeat or choose?
    for part in _PARTS.finditer(_PLAIN.sub("x", pattern)):
        sign, repeat = part[0][0], part["repeat"]
        if sign == "(":
            busy.append(False)
        elif sign == ")":
            inside = busy.pop()
            busy[-1] |= inside or bool(repeat)
            if inside and repeat and repeat[0] != "?":
                return True
        elif sign == "|":
            repeats = 0 if len(busy) == 1 else repeats
            busy[-1] = True
        else:
            busy[-1] = True
        repeats += bool(repeat)
        if repeats > MAX_REPEATS:
            return True
    return False


def _wrong(name: str, expected: str, found: Json) -> ConfigError:
    return ConfigError(f"{name} to be {expected}", repr(found)[:80])
