"""A Keras model on PyTorch as a module with its layers in it, and its optimizer as one of PyTorch.

Keras' layers are modules, but their parameters lie in one dictionary of the model, and its
optimizers are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.keras.names import kind_of, named, owners

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
    """Steps when an optimizer of Keras does, until ``leave``.

    Args:
        optimizer: Of Keras, built.
    """

    def __init__(self, optimizer: Any) -> None:
        config = optimizer.get_config()
        known = {
            "lr": Rate(optimizer),
            "weight_decay": config.get("weight_decay") or 0.0,
            "momentum": config.get("beta_1", config.get("momentum")),
        }
        if "epsilon" in config:
            known["eps"] = config["epsilon"]
        super().__init__([v.value for v in optimizer._trainable_variables], known)  # noqa: SLF001 - its own has no name
        self._keras, self._apply = optimizer, optimizer.apply
        self._given: Callable[[], Any] | None = None
        optimizer.apply = self._stepped

    def _stepped(self, *given: Any, **named: Any) -> None:
        self._given = partial(self._apply, *given, **named)
        self.step()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do what Keras is about to do."""
        del closure
        given, self._given = self._given, None
        if given is not None:
            given()

    def leave(self) -> None:
        """Give the optimizer back."""
        if self._keras.__dict__.get("apply") == self._stepped:
            del self._keras.apply
