"""What the variables of a Keras model are called, on each backend."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any


def named(model: Any) -> dict[str, Any]:
    """Return the model's weights by their paths, with dots, without the model's own name."""
    found: dict[str, Any] = {}
    for variable in model.weights:
        path = variable.path.removeprefix(f"{model.name}/").replace("/", ".")
        layer, _, own = path.rpartition(".")
        name, number = path, 1
        while name in found:  # layers of the same name
            number += 1
            name = f"{layer}:{number}.{own}"
        found[name] = variable
    return found


def measured(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the numbers among what Keras reports, without the losses."""
    return {
        name: float(value)
        for name, value in (logs or {}).items()
        if isinstance(value, Real) and not _is_loss(name)
    }


def _is_loss(name: str) -> bool:
    return name == "loss" or name.endswith("_loss")
