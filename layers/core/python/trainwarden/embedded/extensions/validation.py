"""Refuses requests that AWS would refuse, by the service model that botocore ships."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import botocore.session
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

from trainwarden.model import Json

_SIZED = ("string", "list", "map")
# Python's re knows no Unicode categories; these classes accept all that AWS accepts.
_CATEGORIES = ((r"\p{L}", r"\w"), (r"\p{N}", r"\d"), (r"\p{Z}", r"\s"), (r"\p{S}", r"\W"))


@cache
def input_shape(service: str, operation: str) -> StructureShape:
    """Return what an operation takes; the first call takes a tenth of a second."""
    shape = _model(service).operation_model(operation).input_shape
    if shape is None:
        raise KeyError(operation)
    return shape


@cache
def _model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


def violations(shape: Shape, value: Json, path: str = "") -> Iterator[str]:
    """Yield in AWS's words how ``value`` breaks ``shape``: missing, size, range, pattern, enum."""
    if isinstance(shape, StructureShape):
        yield from _structure(shape, value if isinstance(value, dict) else {}, path)
    elif isinstance(shape, ListShape):
        for index, item in enumerate(value, start=1):
            yield from violations(shape.member, item, f"{path}.{index}.member")
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from violations(shape.key, key, f"{path}.key")
            yield from violations(shape.value, item, f"{path}.{key}.member")
    yield from _constraints(shape, value, path)


def _structure(shape: StructureShape, value: dict[str, Json], path: str) -> Iterator[str]:
    for name in shape.required_members:
        if value.get(name) is None:
            yield _violation(None, _join(path, name), "Member must not be null")
    for name, item in value.items():
        if item is not None and name in shape.members:
            yield from violations(shape.members[name], item, _join(path, name))


def _constraints(shape: Shape, value: Json, path: str) -> Iterator[str]:
    meta = shape.metadata
    if shape.type_name in _SIZED:
        kind, size = "length", len(value)
    elif shape.type_name in ("integer", "long"):
        kind, size = "value", value
    else:
        return
    if size < meta.get("min", size):
        yield _violation(
            value, path, f"Member must have {kind} greater than or equal to {meta['min']}"
        )
    if size > meta.get("max", size):
        yield _violation(
            value, path, f"Member must have {kind} less than or equal to {meta['max']}"
        )
    if "pattern" in meta and not _compiled(meta["pattern"]).fullmatch(value):
        yield _violation(
            value, path, f"Member must satisfy regular expression pattern: {meta['pattern']}"
        )
    if meta.get("enum") and value not in meta["enum"]:
        yield _violation(value, path, f"Member must satisfy enum value set: {meta['enum']}")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    for category, near in _CATEGORIES:
        pattern = pattern.replace(category, near)
    return re.compile(pattern, re.DOTALL)


def _violation(value: Json, path: str, constraint: str) -> str:
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {constraint}"


def _join(path: str, name: str) -> str:
    lower = name[:1].lower() + name[1:]
    return f"{path}.{lower}" if path else lower
