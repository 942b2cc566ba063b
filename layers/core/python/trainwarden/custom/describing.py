"""A rule's description as JSON, and the stand-in that is made of it where the rule does not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, make_dataclass
from types import MappingProxyType
from typing import Any

from trainwarden import rules
from trainwarden.engine import StandIn
from trainwarden.errors import BadInputError
from trainwarden.model import Json, Need, Rule, RuleMeta, Severity, Tier
from trainwarden.rules import Bounds, param, parameters

_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "float": float,
        "int": int,
        "bool": bool,
        "str": str,
        "list of str": tuple[str, ...],
        "float or none": float | None,
        "int or none": int | None,
        "bool or none": bool | None,
        "str or none": str | None,
        "list of str or none": tuple[str, ...] | None,
    }
)


def describe(cls: type[Rule[Any]]) -> dict[str, Json]:
    """Return what a deployment has to know of a rule that runs elsewhere.

    Raises:
        BadInputError: no rule, or a parameter of a type that cannot be written in JSON.
    """
    if not rules.is_rule(cls):
        raise BadInputError("a frozen dataclass derived from Rule, with a meta", repr(cls))
    meta = cls.meta
    return {
        "name": meta.name,
        "code": meta.code,
        "severity": meta.severity.value,
        "tier": meta.tier.value,
        "needs": [[str(need.collection), need.stat] for need in meta.needs],
        "remedies": list(meta.remedies),
        "capture": meta.capture,
        "explains": list(meta.explains),
        "default": meta.default,
        "waiting": cls.wait is not Rule.wait,
        "finishing": cls.finish is not Rule.finish,
        "parameters": _parameters(cls),
    }


def _parameters(cls: type[Rule[Any]]) -> list[dict[str, Json]]:
    metadata = {one.name: one.metadata for one in fields(cls)}  # type: ignore[arg-type]
    found = []
    for one in parameters(cls):
        if one.type not in _TYPES:
            expected = f"a parameter of a type of {', '.join(_TYPES)}"
            raise BadInputError(expected, f"{cls.meta.name}.{one.name}: {one.type}")
        own = metadata[one.name]
        found.append(
            {
                "name": one.name,
                "type": one.type,
                "default": one.default,
                "required": one.required,
                "doc": one.doc,
                "unit": one.unit,
                "bounds": list(_bounds(own.get("bounds"))),
                "choices": list(own.get("choices", ())),
                "pattern": bool(own.get("pattern", False)),
            }
        )
    return found


def _bounds(bounds: Bounds | None) -> Iterable[float | None]:
    found = bounds or Bounds()
    return found.ge, found.gt, found.le, found.lt


def stand_in(description: Mapping[str, Json]) -> type[StandIn]:
    """Make the stand-in of a described rule; the description is one that ``describe`` made."""
    meta = RuleMeta(
        str(description["code"]),
        str(description["name"]),
        Severity(description["severity"]),
        Tier(description["tier"]),
        tuple(Need(collection, stat) for collection, stat in description["needs"]),
        tuple(description["remedies"]),
        str(description["capture"]),
        explains=tuple(description["explains"]),
        default=bool(description["default"]),
    )
    made: type[StandIn] = make_dataclass(
        meta.name,
        [(one["name"], _TYPES[one["type"]], _field(one)) for one in description["parameters"]],
        bases=(StandIn,),
        namespace={
            "__module__": __name__,
            "meta": meta,
            "waiting": bool(description["waiting"]),
            "finishing": bool(description["finishing"]),
        },
        frozen=True,
        kw_only=True,
    )
    return made


def _field(one: Mapping[str, Json]) -> Any:
    default = tuple(one["default"]) if isinstance(one["default"], list) else one["default"]
    return param(
        MISSING if one["required"] else default,
        str(one["doc"]),
        str(one["unit"]),
        bounds=Bounds(*one["bounds"]),
        choices=tuple(one["choices"]),
        pattern=bool(one["pattern"]),
    )
