"""A Keras model on PyTorch as a module with its layers in it, and its optimizers as PyTorch's.

Keras' layers are modules, but their parameters lie in one dictionary of the model, and its
optimizers are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.keras.names import kind_of, named, owners
from trainwarden.hook.saying import say

_STATISTICS = {"moving_mean": "running_mean", "moving_variance": "running_var"}


class Layer(nn.Module):
    """Stands for a layer: has its parameters, and is called when it is.

    Args:
        layer: Of Keras.
        variables: Its own ones, by name.
    """

    outputs_last = True  # of its matrices and kernels

    def __init__(self, layer: Any, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self._layer = (layer,)  # a module that shall not be one of this one's
        for name, variable in variables.items():
            if name in _STATISTICS:
                self.register_buffer(_STATISTICS[name], variable.value)
            else:
                self._parameters[name] = variable.value
        if "moving_mean" in variables:
            self.momentum = 1.0 - layer.momentum

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], **options: Any
    ) -> RemovableHandle:
        """Call ``hook`` with this module when the layer is called."""
        [layer] = self._layer
        handle: RemovableHandle = layer.register_forward_pre_hook(self._as(hook), **options)
        return handle

    def register_forward_hook(self, hook: Callable[..., Any], **options: Any) -> RemovableHandle:
        """Call ``hook`` with this module when the layer was called."""
        [layer] = self._layer
        handle: RemovableHandle = layer.register_forward_hook(self._as(hook), **options)
        return handle

    def _as(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _layer, *call: hook(self, *call)


class Model(Layer):
    """Stands for a model; in training mode when it is."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, {})
        found, layers, parts = named(model), owners(model), dict[str, tuple[Any, dict[str, Any]]]()
        for name, variable in found.items():
            path, _, last = name.rpartition(".")
            parts.setdefault(path, (layers[id(variable)], {}))[1][last] = variable
        for path, (layer, own) in parts.items():
            self._modules[path] = type(kind_of(layer), (Layer,), {})(layer, own)

    @property
    def training(self) -> bool:
        """Of the model."""
        return bool(self._layer[0].training)

    @training.setter
    def training(self, value: bool) -> None:
        """Nobody sets it but the model."""


class Rate:
    """The learning rate of an optimizer of Keras, read when somebody wants to know."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __float__(self) -> float:
        return float(self._optimizer.learning_rate)


class Optimizer(torch.optim.Optimizer):
    """Steps when an optimizer of Keras does.

    Args:
        optimizer: Of Keras.
        variables: What it trains.
    """

    def __init__(self, optimizer: Any, variables: Iterable[Any]) -> None:
        config = optimizer.get_config()
        known = {
            "lr": Rate(optimizer),
            "weight_decay": config.get("weight_decay") or 0.0,
            "momentum": config.get("beta_1", config.get("momentum")),
        }
        if "epsilon" in config:
            known["eps"] = config["epsilon"]
        super().__init__([variable.value for variable in variables], known)
        self.update: Callable[[], Any] | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do what Keras is about to do."""
        del closure
        update, self.update = self.update, None
        if update is not None:
            update()


class Tap:
    """On an optimizer of Keras: one of PyTorch steps with it, from its first step on.

    Args:
        optimizer: Of Keras; whoever never steps is never seen.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._apply = optimizer, optimizer.apply
        self._stepping: Optimizer | None = None
        optimizer.apply = self._applied

    def _applied(self, *given: Any, **named: Any) -> None:
        update = partial(self._apply, *given, **named)
        if self._stepping is None:
            variables = named.get("trainable_variables", given[1] if len(given) > 1 else None)
            try:
                known = variables or self._optimizer._trainable_variables  # noqa: SLF001 - of no name
                self._stepping = Optimizer(self._optimizer, known)
            except Exception as error:  # noqa: BLE001 - it must not end the training
                say(f"steps of this optimizer are not seen: {type(error).__name__}: {error}")
                self.leave()
        if self._stepping is None:
            update()
        else:
            self._stepping.update = update
            self._stepping.step()

    def leave(self) -> None:
        """Give the optimizer back."""
        if self._optimizer.__dict__.get("apply") == self._applied:
            del self._optimizer.apply
