"""ReLUs that are no modules: ``torch.nn.functional.relu`` and ``torch.relu`` in a forward pass.

They are told apart by their order, and named in the first forward pass after the module that ran
before them: ``activation/conv1.relu``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.weak import weakly

# The module's own call is seen by its hook. Its frame is two below the one that looks.
_OF_MODULE = nn.ReLU.forward.__code__
_FRAMES = 5


class FunctionalRelus:
    """Watches ReLU functions during one forward pass of a saved step.

    Args:
        session: Guards what is ours.
        computed: Called with a name and the output of each call.
    """

    def __init__(self, session: Session, computed: Callable[[str, torch.Tensor], None]) -> None:
        self._session, self._computed = session, weakly(computed)
        self._names: dict[str, list[str]] = {}
        self._prefix, self._position, self._learning, self._inside = "", 0, False, False
        self.after = ""  # path of the module that was entered last
        self._patches = [
            Patch(owner, name, self._around)
            for owner, name in (
                (functional, "relu"),
                (functional, "relu_"),
                (torch, "relu"),
                (torch, "relu_"),
            )
        ]

    def start(self, prefix: str) -> None:
        """The forward pass of a root begins."""
        self._learning = prefix not in self._names
        self._names.setdefault(prefix, [])
        self._prefix, self._position, self.after = prefix, 0, prefix
        if self._learning or self._names[prefix]:
            for patch in self._patches:
                patch.install()

    def stop(self) -> None:
        """The forward pass is over."""
        for patch in self._patches:
            patch.remove()

    def _around(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._inside or _called_by_module():
            return original(*args, **kwargs)
        self._inside = True
        try:
            result = original(*args, **kwargs)
        finally:
            self._inside = False
        self._session.guarded(partial(self._seen, result))
        return result

    def _seen(self, result: Any) -> None:
        names, position = self._names[self._prefix], self._position
        self._position += 1
        if self._learning and position == len(names):
            name = f"{self.after}.relu".strip(".")
            same = sum(known == name or known.startswith(f"{name}:") for known in names)
            names.append(f"{name}:{same}" if same else name)
        if position < len(names) and isinstance(result, torch.Tensor):
            self._computed(names[position], result)


def _called_by_module() -> bool:
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to see who calls
    for _ in range(_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if frame.f_code is _OF_MODULE:
            return True
    return False
