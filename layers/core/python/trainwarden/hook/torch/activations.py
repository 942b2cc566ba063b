"""Outputs of activation functions, with the activity of each channel of ReLU-like ones.

At first also what is put into those that cut or saturate.

Hooks are on the modules only during the first forward pass of a saved step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.draft import Draft
from trainwarden.hook.options import MODULE_OUTPUT
from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback
from trainwarden.hook.torch.functions import BOUNDS, Bounds, Functions
from trainwarden.hook.torch.modules import Modules, Named
from trainwarden.hook.torch.order import Order
from trainwarden.hook.torch.outputs import Output, Outputs
from trainwarden.hook.torch.views import tensors_in
from trainwarden.model import Collection

MAX_CALLS = 4  # of one module in one forward pass: a ReLU used twice has two rows
MAX_INPUTS = 10  # forward passes in which also inputs are looked at
GIVEN, MODULES = "activation_inputs", "module_outputs"  # collections
_ACTIVATIONS = Collection.ACTIVATIONS.value
_RELU_LIKE = (nn.ReLU, nn.ReLU6, nn.Threshold)
_NOT_FUNCTIONS = (nn.MultiheadAttention, nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin)


class Activations:
    """Hooks for one forward pass.

    Args:
        session: Whose layout gets the rows.
        modules: The watched modules.
    """

    def __init__(self, session: Session, modules: Modules) -> None:
        self._session, self._modules = session, modules
        self._draft: Draft | None = None
        self._handles: list[RemovableHandle] = []
        self._calls: dict[int, int] = {}
        self._known: dict[tuple[str, int], Output] = {}
        self._targets: dict[str, list[tuple[nn.Module, Callback, Callback | None]]] = {}
        self._passes: dict[str, int] = {}
        self._walks, self._configs = -1, session.options.configs
        self._has_conv1d = self._compiled = False
        self._compiled_roots: dict[str, bool] = {}
        self._compiled_walks = -1
        self._functions = Functions(session, self._given_to_function, self._computed_by_function)
        self._early, self._outputs = False, Outputs(session)
        self.order = Order(session, self._entered)

    def attach(self, draft: Draft, prefix: str, *, everything: bool = False) -> None:
        """Put hooks on the modules of one root for its next forward pass.

        Args:
            draft: Gets the rows.
            prefix: Of the root.
            everything: Look at the output of every module for what is not finite.
        """
        self.detach()
        done = self._passes[prefix] = self._passes.get(prefix, 0) + 1
        self._early = done <= MAX_INPUTS
        self._calls, self._draft = {}, draft
        modules = self._modules.below(prefix)
        configs = self._session.options.configs
        if self._walks != self._modules.walks or self._configs is not configs:
            self._walks, self._configs, self._targets = self._modules.walks, configs, {}
            self._known.clear()
        if prefix not in self._targets:
            self._targets[prefix] = self._find(modules)
        self._learn(prefix, modules, training=True)
        for module, computed, given in self._targets[prefix]:
            self._handles.append(computed.hang(module.register_forward_hook))
            if self._early and given is not None:
                self._handles.append(given.hang(module.register_forward_pre_hook))
        if everything:
            self._check_all(modules)
        options = self._session.options
        by_function = Collection.ACTIVATIONS in options.collections and not self._compiled
        if by_function and options.activation_modules is None:
            self._functions.start(prefix)

    def learn(self, prefix: str) -> None:
        """Learn the order of the modules in a pass that may be of training."""
        self._learn(prefix, self._modules.below(prefix), training=False)

    def _learn(self, prefix: str, modules: Named, *, training: bool) -> None:
        def chosen() -> Named:
            return [
                (path, module)
                for path, module in self._open(modules)
                if module._parameters or self._is_target(path, module)  # noqa: SLF001 - only its own
            ]

        self._handles.extend(self.order.hang(prefix, modules, chosen, training=training))

    def detach(self) -> None:
        """Take all hooks out."""
        self._functions.stop()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def compiled(self, prefix: str) -> bool:
        """Say whether something below a root is compiled: what it calls is not to be touched."""
        if self._compiled_walks != self._modules.walks:
            self._compiled_walks, self._compiled_roots = self._modules.walks, {}
        if prefix not in self._compiled_roots:
            found = any(_is_compiled(module) for _, module in self._modules.below(prefix))
            self._compiled_roots[prefix] = found
        return self._compiled_roots[prefix]

    def _open(self, modules: Named) -> Named:
        """Return the modules whose hooks would be called: those that are not compiled."""
        compiled = [path for path, module in modules if _is_compiled(module)]
        self._compiled = bool(compiled)
        if "" in compiled:
            return []
        inside = tuple(f"{path}." for path in compiled)
        return [one for one in modules if not f"{one[0]}.".startswith(inside)]

    def _check_all(self, modules: Named) -> None:
        for path, module in self._open(modules):
            if next(module.children(), None) is None and not self._is_activation(path, module):
                checked = Callback(self._session, partial(self._checked, path))
                self._handles.append(checked.hang(module.register_forward_hook))

    def _find(self, modules: Named) -> list[tuple[nn.Module, Callback, Callback | None]]:
        self._has_conv1d = any(isinstance(module, nn.Conv1d) for _, module in modules)
        wanted = [(path, module) for path, module in modules if self._is_target(path, module)]
        found = self._open(modules)
        callable_ = {id(module) for _, module in found}
        if any(id(module) not in callable_ for _, module in wanted):
            self._session.say(
                "activations are not captured: torch.compile does not call the hooks of the "
                "modules inside; for activations, train some steps without it"
            )
        return [
            (
                module,
                Callback(self._session, partial(self._computed, path)),
                Callback(self._session, partial(self._given, path))
                if isinstance(module, _RELU_LIKE) or _bounds(module)
                else None,
            )
            for path, module in wanted
            if id(module) in callable_
        ]

    def _is_target(self, path: str, module: nn.Module) -> bool:
        return self._is_activation(path, module) or bool(self._session.options.output_of(path))

    def _is_activation(self, path: str, module: nn.Module) -> bool:
        if not self._session.options.wants(Collection.ACTIVATIONS, f"activation/{path}"):
            return False
        pattern = self._session.options.activation_modules
        if pattern is not None:
            return bool(path) and pattern.search(path) is not None
        known = type(module).__module__ == "torch.nn.modules.activation"
        return known and not isinstance(module, _NOT_FUNCTIONS)

    def _entered(self, path: str) -> None:
        self._functions.after = path

    def _computed(self, path: str, module: nn.Module, _args: Any, output: Any) -> None:
        call = self._calls[id(module)] = self._calls.get(id(module), -1) + 1
        if not isinstance(output, torch.Tensor) or call >= MAX_CALLS:
            return
        known = self._known.get((path, call))
        if known is None:
            usual = self._is_activation(path, module)
            known = self._known[path, call] = Output(
                ("activation/" if usual else MODULE_OUTPUT) + path + (f":{call}" if call else ""),
                _ACTIVATIONS if usual else self._session.options.output_of(path),
                path,
                type(module).__name__,
                self.order.depths.get(id(module), -1),
                _bounds(module),
                relu_like=isinstance(module, _RELU_LIKE),
                convolved=self._has_conv1d,
            )
        if self._draft is not None:
            self._outputs.add(self._draft, known, output)

    def _given(self, path: str, module: nn.Module, args: Any) -> None:
        call = self._calls.get(id(module), -1) + 1
        if args and isinstance(args[0], torch.Tensor) and call < MAX_CALLS:
            name = f"activation_input/{path}" + (f":{call}" if call else "")
            kind, depth = type(module).__name__, self.order.depths.get(id(module), -1)
            self._add(Output(name, GIVEN, path, kind, depth), args[0])

    def _given_to_function(self, name: str, _kind: str, tensor: torch.Tensor) -> None:
        if self._early:
            self._add(Output(f"activation_input/{name}", GIVEN), tensor)

    def _computed_by_function(
        self, name: str, kind: str, bounds: Bounds, output: torch.Tensor
    ) -> None:
        depth = len(self.order.depths) or -1  # behind what was entered so far
        made = Output(
            f"activation/{name}",
            _ACTIVATIONS,
            "",
            kind,
            depth,
            bounds,
            relu_like=kind in {"ReLU", "ReLU6"},
            convolved=self._has_conv1d,
        )
        self._add(made, output)

    def _checked(self, path: str, module: nn.Module, _args: Any, output: Any) -> None:
        """Keep what a module returns if it is not finite."""
        for tensor in tensors_in(output)[:1]:
            if tensor.is_floating_point() and not bool(tensor.detach().isfinite().all()):
                kind, depth = type(module).__name__, self.order.depths.get(id(module), -1)
                self._add(Output(f"module/{path}", MODULES, path, kind, depth), tensor)

    def _add(self, output: Output, tensor: torch.Tensor) -> None:
        wanted = output.collection == MODULES or self._session.options.wants(
            _ACTIVATIONS, output.name
        )
        if wanted and self._draft is not None:
            self._outputs.add(self._draft, output, tensor)


def _is_compiled(module: nn.Module) -> bool:
    """Say whether hooks inside would not be called, and would make it compile again."""
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or type(module).__name__ == "OptimizedModule"


def _bounds(module: nn.Module) -> Bounds:
    """Return where an activation function counts as saturated; None if it does not saturate."""
    if isinstance(module, nn.Hardtanh) and not isinstance(module, nn.ReLU6):
        return float(module.min_val), float(module.max_val)
    return next(
        (bounds for kind, bounds in BOUNDS.items() if isinstance(module, getattr(nn, kind))), None
    )
