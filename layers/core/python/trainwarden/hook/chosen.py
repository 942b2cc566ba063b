"""Rules as a script may pass them, as the JSON of the manifest.

Rules, rule classes, collections and actions are known by their shape alone: the hook does not
import them.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path

from trainwarden.documents import read_document
from trainwarden.errors import ConfigError
from trainwarden.model import Json


def plain_rules(value: object) -> Json:
    """Return ``rules=`` of ``watch`` with every object in it turned into names and numbers.

    Two rules of one class get keys of their own, unless they are alike.

    Raises:
        ConfigError: something that is no rule, collection, name, number, list, mapping or path of
            a file of these.
    """
    return _plain(read_document(value, "rules") if isinstance(value, Path) else value, {})


def _plain(value: object, taken: dict[str, Json]) -> Json:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, taken) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, taken) for item in value]
    name = str(getattr(getattr(value, "meta", None), "name", ""))
    if name and inspect.isclass(value):
        return name
    if name and dataclasses.is_dataclass(value) and not inspect.isclass(value):
        return _rule(name, value, taken)
    for method in ("to_json", "words"):  # a collection, an action
        made = getattr(value, method, None)
        if callable(made) and not inspect.isclass(value):
            return _plain(made(), taken)
    expected = "rules made of names, numbers, lists, dicts, rules and collections of rules"
    raise ConfigError(expected, f"a {type(value).__name__}")


def _rule(name: str, rule: object, taken: dict[str, Json]) -> Json:
    """Return a rule with the parameters that are not its class's defaults."""
    given = {
        field.name: getattr(rule, field.name)
        for field in dataclasses.fields(rule)  # type: ignore[arg-type]
        if getattr(rule, field.name) != field.default
    }
    entry = {"rule": name, "parameters": _plain(given, {})}
    key, number = name, 2
    while taken.get(key, entry["parameters"]) != entry["parameters"]:
        key, number = f"{name}-{number}", number + 1
    taken[key] = entry["parameters"]
    return entry if key == name else {**entry, "key": key}
