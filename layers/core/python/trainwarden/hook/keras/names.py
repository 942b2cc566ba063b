"""What the variables of a Keras model are called, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import keras

# What rules know layers by.
_KINDS = {"Dense": "Linear", "EinsumDense": "Linear", "MultiHeadAttention": "MultiheadAttention"}


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


def owners(model: Any) -> dict[int, Any]:
    """Return id of variable → the innermost layer that has it."""
    found: dict[int, Any] = {}
    for layer in reversed(model._flatten_layers()):  # noqa: SLF001 - no other way to inner ones
        for variable in layer.weights:
            found.setdefault(id(variable), layer)
    return found


def kind_of(layer: Any) -> str:
    """Return the name of a layer's class, in PyTorch's words where rules ask for it."""
    kind = type(layer).__name__
    return _KINDS.get(kind, kind)


def optimizers(model: Any) -> list[Any]:
    """Return the optimizers that are attributes of a model."""
    found = [one for one in vars(model).values() if isinstance(one, keras.optimizers.Optimizer)]
    return list({id(one): one for one in found}.values())


def scales_loss(model: Any) -> bool:
    """Say whether gradients are not the true ones until an optimizer has made them so."""
    return any(
        isinstance(one, keras.optimizers.LossScaleOptimizer) or one.loss_scale_factor is not None
        for one in optimizers(model)
    )


def measured(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the numbers among what Keras reports, without the losses."""
    return {
        name: float(value)
        for name, value in (logs or {}).items()
        if isinstance(value, Real) and not _is_loss(name)
    }


def _is_loss(name: str) -> bool:
    return name == "loss" or name.endswith("_loss")
