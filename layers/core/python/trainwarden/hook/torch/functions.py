"""Activation functions that are no modules: ``torch.nn.functional.relu``, ``torch.tanh`` and so on.

They are told apart by their order, and named in the first forward pass after the module that ran
before them: ``activation/conv1.relu``. Methods of tensors (``x.tanh()``) are not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.weak import weakly

MAX_CALLS = 64  # of functions in one forward pass; recurrent cells by hand make thousands
Bounds = tuple[float, float] | None
# Where the slope is under 8 % of its largest, or nothing at all passes.
BOUNDS: Mapping[str, Bounds] = {
    "ReLU": None,
    "ReLU6": (float("-inf"), 6.0),  # zeros below are a ReLU's
    "Hardtanh": (-1.0, 1.0),
    "Hardsigmoid": (0.0, 1.0),
    "Sigmoid": (0.02, 0.98),
    "Softsign": (-0.72, 0.72),
    "Tanh": (-0.96, 0.96),
}
_WATCHED: tuple[tuple[Any, str, str], ...] = (
    (functional, "relu", "ReLU"),
    (functional, "relu_", "ReLU"),
    (torch, "relu", "ReLU"),
    (torch, "relu_", "ReLU"),
    (functional, "relu6", "ReLU6"),
    (functional, "hardtanh", "Hardtanh"),
    (functional, "hardsigmoid", "Hardsigmoid"),
    (functional, "softsign", "Softsign"),
    (functional, "sigmoid", "Sigmoid"),
    (torch, "sigmoid", "Sigmoid"),
    (torch, "sigmoid_", "Sigmoid"),
    (functional, "tanh", "Tanh"),
    (torch, "tanh", "Tanh"),
    (torch, "tanh_", "Tanh"),
)
# The module's own call is seen by its hook. Its frame is two below the one that looks.
_OF_MODULES = frozenset(getattr(nn, kind).forward.__code__ for kind in BOUNDS)
_FRAMES = 5


class Functions:
    """Watches activation functions during one forward pass of a saved step.

    Args:
        session: Guards what is ours.
        given: Called with a name and the input of each call, before it.
        computed: Called with a name, the kind (``Tanh``), the bounds and the output of each call.
    """

    def __init__(
        self,
        session: Session,
        given: Callable[[str, str, torch.Tensor], None],
        computed: Callable[[str, str, Bounds, torch.Tensor], None],
    ) -> None:
        self._session = session
        self._given, self._computed = weakly(given), weakly(computed)
        self._names: dict[str, list[str]] = {}
        self._prefix, self._position, self._learning, self._inside = "", 0, False, False
        self.after = ""  # path of the module that was entered last
        self._patches = {
            (owner, name): Patch(owner, name, partial(self._around, (owner, name), kind))
            for owner, name, kind in _WATCHED
            if hasattr(owner, name)
        }
        self._used: dict[str, set[tuple[Any, str]]] = {}

    def start(self, prefix: str) -> None:
        """The forward pass of a root begins."""
        self._learning = prefix not in self._names
        self._names.setdefault(prefix, [])
        used = self._used.setdefault(prefix, set())
        self._prefix, self._position, self.after = prefix, 0, prefix
        for key in self._patches if self._learning else used:
            self._patches[key].install()

    def stop(self) -> None:
        """The forward pass is over."""
        for patch in self._patches.values():
            if patch.installed:
                patch.remove()

    def _around(
        self,
        key: tuple[Any, str],
        kind: str,
        original: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if self._inside or _called_by_module():
            return original(*args, **kwargs)
        self._inside = True
        try:
            name = self._session.guarded(self._named, key, kind)
            if name is not None:
                self._session.guarded(self._begin, name, kind, args)
            result = original(*args, **kwargs)
        finally:
            self._inside = False
        if name is not None:
            self._session.guarded(self._end, name, kind, (args, kwargs), result)
        return result

    def _named(self, key: tuple[Any, str], kind: str) -> str | None:
        """Return the name of this call; None if it is one too many."""
        names, position = self._names[self._prefix], self._position
        self._position += 1
        if self._learning and position == len(names) < MAX_CALLS:
            self._used[self._prefix].add(key)
            name = f"{self.after}.{kind.lower()}".strip(".")
            same = sum(known == name or known.startswith(f"{name}:") for known in names)
            names.append(f"{name}:{same}" if same else name)
        return names[position] if position < len(names) else None

    def _begin(self, name: str, kind: str, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], torch.Tensor):
            self._given(name, kind, args[0])

    def _end(self, name: str, kind: str, call: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            bounds = _hardtanh(*call) if kind == "Hardtanh" else BOUNDS[kind]
            self._computed(name, kind, bounds, result)


def _hardtanh(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bounds:
    low = args[1] if len(args) > 1 else kwargs.get("min_val", -1.0)
    high = args[2] if len(args) > 2 else kwargs.get("max_val", 1.0)  # noqa: PLR2004 - third argument
    return float(low), float(high)


def _called_by_module() -> bool:
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to see who calls
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code in _OF_MODULES:
            return True
    return False
