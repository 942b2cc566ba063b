"""Whether gradients were cleared between backward passes: looked at on a few small parameters.

``zero_grad`` of optimizer, module or hand-written loop all end in the same: the next backward pass
finds no gradient, or zeros, where it adds its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback
from trainwarden.hook.torch.weak import weakly


class Probe:
    """Counts backward passes that reach one parameter, and what became of their gradients.

    Two hooks: one before the gradient is added to what is there, one after. ``autograd.grad`` adds
    nothing and calls only the first. Zeros say nothing if the gradient was zero before: that of a
    critic's bias always is.

    Args:
        session: Guards the hooks.
        parameter: A leaf that requires gradients.

    Attributes:
        passes: Backward passes since its optimizer's last step.
        cleared: One of them found no gradient.
        blank: None of them left anything but zeros: nothing is known.
        unused: Backward passes since the last step of any optimizer, or since it was cleared.
        discarded: Backward passes whose gradient was cleared and that no optimizer had used.
        period: Backward passes from one clearing without a step to the next.
        row: How often in a row that was the period.
    """

    def __init__(self, session: Session, parameter: torch.Tensor) -> None:
        self.parameter = parameter
        self.handles: list[RemovableHandle] = []
        self.passes = self.unused = self.discarded = self.period = self.row = 0
        self.cleared, self.blank = False, True
        self._steps, self._zeros = 0, True
        self._found: tuple[int, bool] | None = None
        self._before = Callback(session, weakly(self._reached))
        self._after = Callback(session, weakly(self._added))

    def hang(self) -> None:
        """Put the hooks in place, just after its optimizer stepped."""
        if not self.handles and self.parameter.requires_grad:  # else it was frozen since
            self.stepped(own=True)
            self.handles = [
                self._before.hang(self.parameter.register_hook),
                self._after.hang(self.parameter.register_post_accumulate_grad_hook),
            ]

    def take(self) -> None:
        """Take them out."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def stepping(self) -> None:
        """Its optimizer is about to step: gradients that were cleared are of no use to it."""
        if self.unused and self._is_cleared():
            self.discarded += self.unused

    def stepped(self, *, own: bool) -> None:
        """An optimizer stepped, its ``own`` or another one."""
        self.unused = self.row = 0
        if own:
            self._steps += 1
            self.passes = self.discarded = 0
            self.cleared, self.blank = False, True

    def _is_cleared(self) -> bool:
        gradient = self.parameter.grad
        return gradient is None or (not self._zeros and is_zero(gradient))

    def _reached(self, _gradient: Any) -> None:
        self._found = (self._steps, self._is_cleared())

    def _added(self, _parameter: Any) -> None:
        found, self._found = self._found, None
        if found is None or found[0] != self._steps:  # an optimizer stepped in the backward pass
            return
        self.passes += 1
        self._zeros = self.parameter.grad is None or is_zero(self.parameter.grad)
        self.blank = self.blank and self._zeros
        if not found[1]:
            self.unused += 1
            return
        self.cleared = True
        if self.unused:
            self.discarded += self.unused
            self.row = self.row + 1 if self.unused == self.period else 1
            self.period = self.unused
        self.unused = 1


def is_zero(gradient: torch.Tensor) -> bool:
    """Say whether there are only zeros; waits for an accelerator."""
    if type(gradient) is not torch.Tensor and hasattr(gradient, "to_local"):
        gradient = gradient.to_local()  # DTensor: other ranks do not look
    if gradient.layout is not torch.strided:
        gradient = gradient.coalesce().values() if gradient.is_sparse else gradient.values()
    return not gradient.any().item()


def choose(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Choose a small parameter of the first half and one of the second, with gradients if any."""
    usable = [
        parameter
        for parameter in parameters
        if parameter.requires_grad
        and parameter.is_leaf
        and not parameter.is_meta
        and not is_lazy(parameter)
        and parameter.numel()
    ]
    usable = [parameter for parameter in usable if parameter.grad is not None] or usable
    half = len(usable) // 2
    return [min(part, key=torch.Tensor.numel) for part in (usable[:half], usable[half:]) if part]
