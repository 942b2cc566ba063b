"""Finds the torch modules that a script trains, when the first of them is called in training."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainwarden.hook.exits import EXITS
from trainwarden.hook.saying import say
from trainwarden.hook.torch.callbacks import no_training
from trainwarden.hook.torch.hook import Hook, watch
from trainwarden.model import Json


class FirstCall:
    """Waits for the first call of a module in training that shares parameters with an optimizer.

    Until then each call of a module is looked at; from then on nothing is.

    Attributes:
        hook: Of what is watched; kept, so that it lives as long as the process.
    """

    def __init__(self) -> None:
        self.hook: Hook | None = None
        self._options: dict[str, Json] = {}
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._call: Any = None
        self._init: Any = None

    def wait(self, options: Mapping[str, Json]) -> None:
        """Look at calls and at new optimizers from now on."""
        self._options = dict(options)
        call, init = nn.Module.__call__, Optimizer.__init__

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if module.training and torch.is_grad_enabled() and not no_training():
                self._look(module)
            return call(module, *args, **kwargs)

        def made(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._optimizers.append(weakref.ref(optimizer))

        self._call, self._init = (called, call), (made, init)
        nn.Module.__call__ = called  # type: ignore[method-assign,assignment,unused-ignore]
        Optimizer.__init__ = made  # type: ignore[method-assign,assignment,unused-ignore]

    def _look(self, module: nn.Module) -> None:
        optimizers = [found for one in self._optimizers if (found := one()) is not None]
        held = {id(p) for one in optimizers for p in _parameters(one)}
        if EXITS.sessions:  # the script watches by itself
            self.leave()
        elif held and not held.isdisjoint(map(id, module.parameters())):
            self.leave()
            try:
                roots = roots_of(optimizers, module)
                self.hook = watch(roots, optimizers, **self._options)
            except Exception as error:  # noqa: BLE001 - it must not end the training
                say(f"this training is not watched by itself: {type(error).__name__}: {error}")

    def leave(self) -> None:
        """Put back what was there, unless somebody else has put something in its place."""
        if self._call is not None and nn.Module.__call__ is self._call[0]:
            nn.Module.__call__ = self._call[1]  # type: ignore[method-assign]
        if self._init is not None and Optimizer.__init__ is self._init[0]:
            Optimizer.__init__ = self._init[1]  # type: ignore[method-assign]


def roots_of(
    optimizers: Sequence[Optimizer], called: nn.Module
) -> nn.Module | dict[str, nn.Module]:
    """Return the module that holds what the optimizers train, or several by name.

    For each optimizer that is the module with the most of its parameters; of several such the one
    that is called now, else the outermost.
    """
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    owned = {id(module): frozenset(map(id, module.parameters())) for module in modules}
    roots: list[nn.Module] = []
    for optimizer in optimizers:
        wanted = {id(p) for p in _parameters(optimizer)}
        if any(wanted <= owned[id(root)] for root in roots):
            continue
        best = max(
            modules,
            key=lambda one: (
                len(wanted & owned[id(one)]),
                one is called,
                -len(owned[id(one)]),
                sum(1 for _ in one.modules()),
            ),
        )
        if wanted & owned[id(best)]:
            roots = [root for root in roots if not owned[id(root)] <= owned[id(best)]]
            roots.append(best)
    return roots[0] if len(roots) == 1 else _named(roots)


def _named(roots: Sequence[nn.Module]) -> dict[str, nn.Module]:
    named: dict[str, nn.Module] = {}
    for root in roots:
        name = base = type(root).__name__.lower()
        number = 1
        while name in named:
            number += 1
            name = f"{base}{number}"
        named[name] = root
    return named


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


TORCH = FirstCall()
