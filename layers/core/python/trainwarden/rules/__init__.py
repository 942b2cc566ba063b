"""The rules: one module each, found by looking into this folder and at installed plug-ins.

A module here whose name starts with an underscore holds no rule. Plug-ins register a rule class
under the entry-point group ``trainwarden.rules``; codes 9xx of each family are theirs.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from trainwarden import grouping
from trainwarden.errors import ConfigError
from trainwarden.model import Json, Rule, RuleMeta
from trainwarden.rules._collection import RuleCollection
from trainwarden.rules._parameters import (
    Bounds,
    CheckedRule,
    Parameter,
    cast,
    check_one,
    nearest,
    param,
    parameters,
)

__all__ = [
    "DEFAULT",
    "PROFILES",
    "SAGEMAKER",
    "Bounds",
    "CheckedRule",
    "Parameter",
    "RuleCollection",
    "build",
    "checked",
    "explained",
    "find",
    "names",
    "nearest",
    "param",
    "parameters",
    "registry",
    "runbook",
]

DEFAULT, SAGEMAKER = "default", "sagemaker"
PROFILES = (DEFAULT, SAGEMAKER)  # our own meaning and limits; SageMaker's documented ones

GROUP = "trainwarden.rules"
RETIRED: Mapping[str, str] = MappingProxyType({})  # code → why it was retired; never used again
# SageMaker parameters that are accepted and have no effect here, with the reason.
WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "base_trial": "the job itself is always the trial",
        "save_interval": "belongs to the capture configuration",
        "stop_training_on_fire": "say action=stop; stopping needs the job's permission",
        "training_job_name_prefix": "jobs are stopped by exact name only",
        "use_losses_collection": "losses are always read from the losses collection",
        "argmax": "labels are class numbers already",
        "predictions_regex": "predictions are found where the loss is computed",
        "labels": "labels are found where the loss is computed",
        "predictions": "predictions are found where the loss is computed",
        "labels_collection": "labels are found where the loss is computed",
        "predictions_collection": "predictions are found where the loss is computed",
        "channel": "channels stand second, as torch has them",
        "threshold_tanh_min": "saturation is counted against fixed bounds of the output",
        "threshold_tanh_max": "saturation is counted against fixed bounds of the output",
        "threshold_sigmoid_min": "saturation is counted against fixed bounds of the output",
        "threshold_sigmoid_max": "saturation is counted against fixed bounds of the output",
        "threshold_inactivity": "elements are counted, not nodes over the batch",
    }
)


_added: list[tuple[Any, str]] = []  # rules of this process only, with where they come from


def add(cls: type[Rule[Any]], source: str) -> None:
    """Add a rule to the registry of this process, as ``--rules-folder`` does.

    Raises:
        ConfigError: no rule, or its name or code is taken; the registry is as before.
    """
    _added.append((cls, source))
    registry.cache_clear()
    try:
        registry()
    except ConfigError:
        _added.pop()
        registry.cache_clear()
        raise


@lru_cache(maxsize=1)
def registry() -> Mapping[str, type[Rule[Any]]]:
    """Every rule by name: those of this folder, installed plug-ins, and those that were added.

    Raises:
        ConfigError: a plug-in that is no rule, or whose name or code is taken or retired.
    """
    found: dict[str, type[Rule[Any]]] = {}
    codes: dict[str, str] = dict(RETIRED)
    for cls, source in _classes():
        if not is_rule(cls):
            raise ConfigError("a frozen dataclass derived from Rule", repr(cls), f"see {source}")
        meta = cls.meta
        if meta.name in found:
            raise ConfigError("a rule name of its own", f"{meta.name} in {source}")
        if meta.code in codes:
            raise ConfigError(
                "a rule code of its own",
                f"{meta.code} in {source}",
                f"it belongs to {codes[meta.code]}",
            )
        found[meta.name], codes[meta.code] = cls, meta.name
    return MappingProxyType(found)


def explained() -> Mapping[str, frozenset[str]]:
    """Return what each rule explains, directly or through others: rule → rules."""
    return grouping.closure({name: cls.meta.explains for name, cls in registry().items()})


def is_rule(cls: object) -> bool:
    """Say whether this is a class of a rule that can be built by name."""
    ours = inspect.isclass(cls) and issubclass(cls, Rule) and is_dataclass(cls)
    return ours and isinstance(getattr(cls, "meta", None), RuleMeta)


def _classes() -> Iterator[tuple[Any, str]]:
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if module_info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for value in vars(module).values():
            own = inspect.isclass(value) and value.__module__ == module.__name__
            if own and issubclass(value, Rule):
                yield value, module.__name__
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        yield entry.load(), f"plug-in {entry.value}"
    yield from _added


def find(name: str) -> type[Rule[Any]]:
    """Return the rule class of this name.

    Raises:
        ConfigError: no such rule; names the nearest.
    """
    known = registry()
    if name in known:
        return known[name]
    raise ConfigError("the name of a rule", repr(name), nearest(name, known))


def names(profile: str = DEFAULT) -> tuple[str, ...]:
    """Return the rules that a profile runs without being asked for one by one.

    ``default`` runs those of ours that need nothing to be said; ``sagemaker`` those that SageMaker
    Debugger has and that need no parameter there.

    Raises:
        ConfigError: no such profile; names the nearest.
    """
    if profile not in PROFILES:
        expected = f"a profile ({' or '.join(PROFILES)})"
        raise ConfigError(expected, repr(profile), nearest(profile, PROFILES))
    if profile == DEFAULT:
        return tuple(name for name, cls in registry().items() if cls.meta.default)
    return tuple(
        name
        for name, cls in registry().items()
        if cls.meta.sagemaker is not None and not _lacks(name, profile)
    )


def _lacks(name: str, profile: str) -> bool:
    """True if a rule cannot run in a profile before somebody gives it a parameter."""
    meta = find(name).meta
    if meta.required and not any((meta.sagemaker or {}).get(one) for one in meta.required):
        return True
    try:
        build(name, profile=profile)
    except ConfigError:
        return True
    return False


def build(
    name: str, given: Mapping[str, Json] = MappingProxyType({}), *, profile: str = DEFAULT
) -> Rule[Any]:
    """Build a rule from its name and parameters; strings are cast as SageMaker sends them.

    In the profile ``sagemaker`` the documented defaults of SageMaker lie below what is given.

    Raises:
        ConfigError: unknown rule, profile or parameter, a value of the wrong type or range, a
            parameter that is missing, or a rule that SageMaker Debugger does not have.
    """
    cls = find(name)
    if profile not in PROFILES:
        expected = f"a profile ({' or '.join(PROFILES)})"
        raise ConfigError(expected, repr(profile), nearest(profile, PROFILES))
    below: Mapping[str, Json] = {}
    if profile == SAGEMAKER:
        if cls.meta.sagemaker is None:
            raise ConfigError("a rule that SageMaker Debugger has", name, f"use profile {DEFAULT}")
        below = cls.meta.sagemaker
    own = {p.name for p in parameters(cls)}
    wanted = {**below, **given}
    values = cast(cls, {k: v for k, v in wanted.items() if k in own or k not in WITHOUT_EFFECT})
    missing = [p.name for p in parameters(cls) if p.required and p.name not in values]
    if missing:
        raise ConfigError(f"{name} with its parameter {missing[0]}", "none", f"give {missing[0]}")
    return cls(**values)


def checked(name: str, parameter: str, value: Json) -> Json:
    """Return one parameter of a rule, cast and range-checked by itself.

    Raises:
        ConfigError: unknown rule or parameter, or a value of the wrong type or range.
    """
    return check_one(find(name), parameter, value)


def __getattr__(name: str) -> Any:
    """Return a rule's class: ``from trainwarden.rules import Overfit``."""
    if name[:1].isupper() and name in registry():
        return registry()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def runbook(name: str) -> str:
    """Return the rule's runbook: what it sees, why that hurts, what to do, when it is wrong.

    Raises:
        ConfigError: no such rule.
    """
    return inspect.cleandoc(sys.modules[find(name).__module__].__doc__ or "")
