"""In which order the modules are entered in a forward pass: ``TensorInfo.depth``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback
from trainwarden.hook.torch.modules import Named


class Order:
    """Learns the order of each root's modules once, in its first training pass.

    A loop that trains in eval mode is known only when an optimizer steps, so that a pass in eval
    mode with gradients counts until there is one in training mode.

    Args:
        session: Guards the hooks.
        entered: Told the path of each module that is entered.

    Attributes:
        depths: id of module → its position.
    """

    def __init__(self, session: Session, entered: Callable[[str], object]) -> None:
        self._session, self._told = session, entered
        self.depths: dict[int, int] = {}
        self._paths: dict[int, str] = {}
        self._tentative: set[str] = set()

    def hang(
        self,
        prefix: str,
        modules: Named,
        chosen: Callable[[], Named],
        *,
        training: bool,
    ) -> list[RemovableHandle]:
        """Hook the modules of a root if their order is not known.

        Args:
            prefix: Of the root.
            modules: All below the root.
            chosen: Returns those whose order is wanted.
            training: The pass is one of training.
        """
        if training and prefix in self._tentative:
            self._tentative.remove(prefix)
            for _, module in modules:
                self.depths.pop(id(module), None)
        if any(id(module) in self.depths for _, module in modules):
            return []
        if not training:
            self._tentative.add(prefix)
        entered = Callback(self._session, self._entered)
        found = chosen()
        self._paths.update((id(module), path) for path, module in modules)
        return [entered.hang(module.register_forward_pre_hook) for _, module in found]

    def _entered(self, module: nn.Module, _args: Any) -> None:
        if id(module) not in self.depths:
            self.depths[id(module)] = 1 + max(self.depths.values(), default=-1)
        self._told(self._paths.get(id(module), ""))
