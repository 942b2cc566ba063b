"""Reads the losses of steps that are not saved, without waiting for an accelerator.

On the CPU a loss is read when it is seen, before ``backward()``, so that its own step can still be
saved. On CUDA it is copied to pinned memory and read when it has arrived, a step or two later. On
other devices it is kept there until a step is saved.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from trainwarden.hook.torch.weak import weakly
from trainwarden.hook.window import Moment, Window

_SLOTS = 64  # losses on their way
_NAN = math.nan


def readable(loss: torch.Tensor) -> bool:
    """Say if a loss has a value that can be read alone: of a DTensor all ranks have to read."""
    if type(loss) is not torch.Tensor and hasattr(loss, "to_local"):
        return False
    return loss.is_floating_point() and loss.numel() > 0


class _Waiting(NamedTuple):
    """A step whose loss is still on its way: in a slot of pinned memory, or on its device."""

    step: int
    lr: float
    loss: torch.Tensor
    norm: torch.Tensor | None
    limit: float
    arrived: Any  # torch.cuda.Event, or None


class LossWatch:
    """Collects the losses of each step.

    Args:
        window: Gets the numbers.
        alarm: Called with a suspicious loss: tensor and value; its object is not kept alive.
    """

    def __init__(
        self, window: Window, alarm: Callable[[torch.Tensor | None, float], object]
    ) -> None:
        self.window, self._alarm = window, weakly(alarm)
        self.averaging = False  # parts of a step's loss are averaged, not added up
        self._sum, self._parts = 0.0, 0
        self._kept: list[torch.Tensor] = []
        self._norm: float | torch.Tensor | None = None
        self._limit = _NAN
        self._waiting: deque[_Waiting] = deque()
        self._slots: torch.Tensor | None = None
        self._slot = 0

    def saw(self, loss: torch.Tensor) -> None:
        """A part of the loss of the step to come."""
        if not readable(loss):
            return
        if not loss.is_cpu:
            # What a CUDA graph is made of is no step.
            if not (loss.is_cuda and torch.cuda.is_current_stream_capturing()):
                self._kept.append(loss.detach())
                del self._kept[:-_SLOTS]
            return
        value = loss.item() if loss.numel() == 1 else float(loss.detach().mean())
        self._sum += value
        self._parts += 1
        if self.window.suspicious(value):
            self._alarm(loss, value)

    def known(self, name: str) -> dict[str, list[tuple[torch.Tensor, int]]]:
        """Return the loss of the step so far as ``Tally.losses`` has it; empty if unknown."""
        if not self._parts:
            return {}
        loss = self._sum / self._parts if self.averaging else self._sum
        return {name: [(torch.tensor(loss), 1)]}

    def clipped(self, norm: float | torch.Tensor, limit: float) -> None:
        """``clip_grad_norm_`` returned ``norm``; several calls in a step: the last one counts."""
        if isinstance(norm, torch.Tensor) and norm.is_cpu:
            norm = norm.item()
        self._norm = norm.detach() if isinstance(norm, torch.Tensor) else norm
        self._limit = limit
        if not isinstance(norm, torch.Tensor):
            self.window.clip(norm, limit)

    def close(self, step: int, lr: Any) -> None:
        """A step is over; ``lr`` of the first parameter group."""
        rate = float(lr) if isinstance(lr, int | float) else _NAN
        norm, self._norm = self._norm, None
        if self._kept:
            self._wait(step, rate, norm)
        elif self._waiting:
            self._waiting.append(_Waiting(step, rate, torch.tensor(_NAN), None, _NAN, None))
        else:
            loss = self._sum / self._parts if self.averaging and self._parts else self._sum
            read = None if isinstance(norm, torch.Tensor) else norm
            seen = self._parts > 0
            self.window.close(Moment(step, loss if seen else _NAN, rate, read, seen))
        self._sum, self._parts = 0.0, 0
        if self._waiting:
            self._read(wait=False)

    def _wait(self, step: int, lr: float, norm: float | torch.Tensor | None) -> None:
        parts = [one.float().mean().reshape(()) for one in self._kept]
        loss = parts[0] if len(parts) == 1 else torch.stack([p.to(parts[0].device) for p in parts])
        if len(parts) > 1:
            loss = loss.mean() if self.averaging else loss.sum()
        self._kept = []
        on_device = norm if isinstance(norm, torch.Tensor) else None
        arrived = None
        if loss.is_cuda and len(self._waiting) < _SLOTS - 1:
            if self._slots is None:
                self._slots = torch.empty((_SLOTS, 2), pin_memory=True)
            slot = self._slots[self._slot]
            self._slot = (self._slot + 1) % _SLOTS
            slot[0].copy_(loss, non_blocking=True)
            if on_device is not None:
                slot[1].copy_(on_device, non_blocking=True)
            loss, on_device = slot[0], None if on_device is None else slot[1]
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._waiting.append(_Waiting(step, lr, loss, on_device, self._limit, arrived))
        if len(self._waiting) >= _SLOTS:
            self._read(wait=True)

    def settle(self) -> None:
        """Read all that is on its way: at a saved step, which waits for the device anyway."""
        if self._waiting:
            self._read(wait=True)

    def _read(self, *, wait: bool) -> None:
        """Read what has arrived, in order; all of it if ``wait``."""
        while self._waiting:
            first = self._waiting[0]
            if not wait and (
                not first.arrived.query() if first.arrived is not None else not first.loss.is_cpu
            ):
                return
            if first.arrived is not None and wait:
                first.arrived.synchronize()
            self._waiting.popleft()
            value = float(first.loss)
            seen = first.arrived is not None or not first.loss.is_cpu
            norm = None
            if first.norm is not None:
                norm = float(first.norm)
                self.window.clip(norm, first.limit)
            self.window.close(Moment(first.step, value, first.lr, norm, seen=seen))
            if seen and self.window.suspicious(value):
                self._alarm(None, value)
