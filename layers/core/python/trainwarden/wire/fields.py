"""Strict JSON: what the format's documents are read and written with.

Python's own reader accepts NaN, duplicate keys, lone surrogates, endless digits and any depth.
None of it is allowed here, and every refusal is a ``MalformedObjectError``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NoReturn

from trainwarden.errors import MalformedObjectError
from trainwarden.model import Json

MAX_INT = 2**53  # beyond, float64 and JavaScript readers disagree
MAX_DEPTH = 64  # of nested lists and objects in free-form JSON
MAX_COUNTER_CHARS = 256
_MAX_DIGITS = 32


def malformed(expected: str, found: str) -> MalformedObjectError:
    """Build the error of a reader; ``found`` is cut to a length fit for a log line."""
    return MalformedObjectError(expected, found if len(found) <= 120 else found[:117] + "...")  # noqa: PLR2004 - a log line


def _refuse_constant(name: str) -> NoReturn:
    raise malformed("finite numbers in JSON", name)


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise malformed(f"integers of at most {_MAX_DIGITS} digits", f"{len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise malformed("finite numbers in JSON", digits)
    return value


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("unique keys in JSON", "a key that occurs twice")
    return found


def parse_json(body: bytes | memoryview, what: str) -> dict[str, Json]:
    """Read a JSON object strictly.

    Raises:
        MalformedObjectError: no UTF-8, no JSON object, NaN, duplicate keys, too deep.
    """
    try:
        text = str(body, "utf-8")
        found = json.loads(
            text,
            object_pairs_hook=_pairs,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_number,
        )
        if "\\u" in text:  # an escape may spell half a surrogate pair, which no encoder takes
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise malformed(f"{what} as strict JSON", str(error) or type(error).__name__) from error
    if not isinstance(found, dict):
        raise malformed(f"{what} as a JSON object", type(found).__name__)
    _check_depth(found, what)
    return found


def _check_depth(value: Json, what: str) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise malformed(f"{what} nested at most {MAX_DEPTH} deep", "more")
        depth += 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]


def dump_json(value: Json) -> bytes:
    """Write canonical JSON: keys sorted, no spaces, UTF-8; equal values give equal bytes.

    Raises:
        MalformedObjectError: NaN, ±inf, or something that is no JSON.
    """
    try:
        return json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        ).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise malformed("finite JSON values", str(error)) from error


class Fields:
    """Typed, bounded access to a JSON object; each refusal names the document and the field."""

    def __init__(self, values: Mapping[str, Json], what: str) -> None:
        self._values, self._what = values, what

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def names(self) -> tuple[str, ...]:
        """Return the names that are there."""
        return tuple(self._values)

    def _get(self, name: str, expected: str) -> Json:
        if name not in self._values:
            raise malformed(f"{self._what} with {name!r}, {expected}", "none")
        return self._values[name]

    def _refuse(self, name: str, expected: str, found: Json) -> NoReturn:
        raise malformed(f"{self._what}: {name!r} as {expected}", repr(found))

    def integer(self, name: str, low: int = 0, high: int = MAX_INT) -> int:
        """Return an integer in ``[low, high]``; ``true`` and ``1.0`` are none."""
        expected = f"an integer from {low} to {high}"
        found = self._get(name, expected)
        if type(found) is not int or not low <= found <= high:
            self._refuse(name, expected, found)
        return found

    def number(self, name: str, low: float = 0.0, high: float = 1e15) -> float:
        """Return a finite number in ``[low, high]``."""
        expected = f"a number from {low:g} to {high:g}"
        found = self._get(name, expected)
        if type(found) not in (int, float) or not low <= found <= high:
            self._refuse(name, expected, found)
        return float(found)

    def text(self, name: str, max_chars: int = 1024) -> str:
        """Return a string of at most ``max_chars`` characters."""
        expected = f"a string of at most {max_chars} characters"
        found = self._get(name, expected)
        if not isinstance(found, str) or len(found) > max_chars:
            self._refuse(name, expected, found)
        return found

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        found = self._get(name, "true or false")
        if not isinstance(found, bool):
            self._refuse(name, "true or false", found)
        return found

    def json(self, name: str) -> Json:
        """Return whatever JSON is there."""
        return self._get(name, "any JSON")

    def mapping(self, name: str, max_items: int = 10_000) -> dict[str, Json]:
        """Return an object of at most ``max_items`` keys."""
        expected = f"an object of at most {max_items} keys"
        found = self._get(name, expected)
        if not isinstance(found, dict) or len(found) > max_items:
            self._refuse(name, expected, found)
        return found

    def items(self, name: str, max_items: int) -> list[Json]:
        """Return a list of at most ``max_items``."""
        expected = f"a list of at most {max_items} items"
        found = self._get(name, expected)
        if not isinstance(found, list) or len(found) > max_items:
            self._refuse(name, expected, found)
        return found

    def objects(self, name: str, max_items: int) -> list[Fields]:
        """Return a list of objects, each as ``Fields``."""
        found = []
        for i, item in enumerate(self.items(name, max_items)):
            if not isinstance(item, dict):
                self._refuse(name, "a list of objects", item)
            found.append(Fields(item, f"{self._what}: {name}[{i}]"))
        return found

    def texts(self, name: str, max_items: int, max_chars: int = 1024) -> list[str]:
        """Return a list of unique strings."""
        found = self.items(name, max_items)
        if not all(isinstance(item, str) and len(item) <= max_chars for item in found):
            self._refuse(name, f"strings of at most {max_chars} characters", found)
        if len(set(found)) != len(found):
            self._refuse(name, "unique strings", found)
        return found

    def integers(self, name: str, max_items: int, low: int = 0, high: int = MAX_INT) -> list[int]:
        """Return a list of integers in ``[low, high]``."""
        found = self.items(name, max_items)
        if not all(type(item) is int and low <= item <= high for item in found):
            self._refuse(name, f"integers from {low} to {high}", found)
        return found

    def counters(self, name: str, max_items: int = 1000) -> dict[str, int]:
        """Return an object of counters, each from 0."""
        found = self.mapping(name, max_items)
        if not all(type(count) is int and 0 <= count <= MAX_INT for count in found.values()):
            self._refuse(name, "counters from 0", found)
        if any(len(word) > MAX_COUNTER_CHARS for word in found):
            self._refuse(name, f"counters with names of at most {MAX_COUNTER_CHARS}", "longer")
        return found
