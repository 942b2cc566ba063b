"""Attributes of a rule as JSON, and back: what a rule counts in ``self`` outlives the step.

Kept are numbers, text, None, and lists, dicts, tuples, sets, deques and numpy arrays of these. What
JSON does not know is written as ``{"$": kind, "v": content}``.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from trainwarden.model import Json

MAX_ELEMENTS = 10_000  # of an array
_DEPTH = 20
_FACTORIES: dict[str, Callable[[], Any]] = {
    "int": int, "float": float, "list": list, "dict": dict, "set": set, "bool": bool, "str": str,
}  # fmt: skip


class CannotKeepError(Exception):
    """A value that JSON cannot hold; ``str`` names its type."""


def encode(value: object, depth: int = 0) -> Json:
    """Return a value as JSON.

    Raises:
        CannotKeepError: it cannot be written.
    """
    if depth > _DEPTH:
        raise CannotKeepError(f"something nested more than {_DEPTH} deep")
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()  # a rule does not care whose number it is
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$": "float", "v": str(value)}
    if type(value) is list:
        return [encode(item, depth + 1) for item in value]
    return _container(value, depth)


def _container(value: object, depth: int) -> Json:
    kind = type(value).__name__
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= MAX_ELEMENTS:
        items = [encode(item) for item in value.reshape(-1).tolist()]
        return {"$": "array", "v": [str(value.dtype), list(value.shape), items]}
    if type(value) in (tuple, set, frozenset):
        items = [encode(item, depth + 1) for item in value]  # type: ignore[attr-defined]
        return {"$": kind, "v": items if type(value) is tuple else sorted(items, key=repr)}
    if isinstance(value, deque) and type(value) is deque:
        return {"$": "deque", "v": [value.maxlen, [encode(item, depth + 1) for item in value]]}
    if type(value) in (dict, OrderedDict, Counter, defaultdict) and isinstance(value, dict):
        return _mapping(value, depth)
    raise CannotKeepError(kind)


def _mapping(value: dict[Any, Any], depth: int) -> Json:
    kind = type(value).__name__
    if kind == "dict" and all(type(key) is str and key != "$" for key in value):
        return {key: encode(item, depth + 1) for key, item in value.items()}
    if isinstance(value, defaultdict) and value.default_factory is not None:
        factory = getattr(value.default_factory, "__name__", "")
        if _FACTORIES.get(factory) is not value.default_factory:
            raise CannotKeepError(f"a defaultdict of {factory or 'something unknown'}")
        kind = f"defaultdict:{factory}"
    pairs = [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in value.items()]
    return {"$": kind, "v": pairs}


def decode(value: Json) -> Any:
    """Return what ``encode`` wrote."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: decode(item) for key, item in value.items()}
    kind, content = value["$"], value["v"]
    name, _, factory = kind.partition(":")
    if name == "defaultdict":
        return _defaultdict(factory, content)
    return _DECODED[name](content)


def _array(content: Json) -> Any:
    items = [decode(item) for item in content[2]]
    return np.array(items, dtype=content[0]).reshape(content[1])


def _deque(content: Json) -> Any:
    return deque([decode(item) for item in content[1]], content[0])


def _pairs(content: Json) -> dict[Any, Any]:
    return {decode(key): decode(item) for key, item in content}


def _defaultdict(factory: str, content: Json) -> Any:
    return defaultdict(_FACTORIES[factory] if factory else None, _pairs(content))


_DECODED: dict[str, Callable[[Json], Any]] = {
    "float": float,
    "array": _array,
    "deque": _deque,
    "tuple": lambda content: tuple(decode(item) for item in content),
    "set": lambda content: {decode(item) for item in content},
    "frozenset": lambda content: frozenset(decode(item) for item in content),
    "dict": _pairs,
    "OrderedDict": lambda content: OrderedDict(_pairs(content)),
    "Counter": lambda content: Counter(_pairs(content)),
}
