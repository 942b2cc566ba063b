"""Whose loss is it? Torch is patched for the whole process, in which several models may train.

With a graph there is no doubt: the loss of a run depends on parameters of its modules. Without one,
in evaluation, the loss is of the model that put out its input, or was called last in the thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from trainwarden.hook.torch.views import tensors_in

_MAX_NODES = 20_000  # of a graph that are looked at; more than any but a giant's
_MAX_FOREIGN = 16  # losses of others in a row, without a forward pass of ours: ask no further
_MAX_OUTPUTS = 4


class _Thread(threading.local):
    """The owner of the model that was called last in a thread; it holds no model."""

    last: Ownership | None = None


_thread = _Thread()
_owners: weakref.WeakSet[Ownership] = weakref.WeakSet()


class Ownership:
    """Tells losses of one run from those of others.

    Args:
        roots: Watched modules; held weakly.
    """

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        self._roots = [weakref.ref(root) for root in roots]
        self._known: dict[int, weakref.ref[torch.Tensor]] = {}
        self._outputs: list[weakref.ref[torch.Tensor]] = []
        self._called = False
        self._foreign = 0
        _owners.add(self)

    def called(self) -> None:
        """A watched module begins its forward pass, in this thread."""
        self._called, self._foreign = True, 0
        _thread.last = self

    def returned(self, output: Any) -> None:
        """A watched module ends its forward pass; modules in it may be watched on their own."""
        _thread.last = self
        self._outputs = [weakref.ref(tensor) for tensor in tensors_in(output)[:_MAX_OUTPUTS]]

    def owns(self, loss: Any, inputs: Any = ()) -> bool:
        """Say if a loss is of this run.

        Args:
            loss: What a loss function returned, or what ``backward()`` is called on.
            inputs: What it was computed from.
        """
        if not isinstance(loss, torch.Tensor):
            return False
        if loss.grad_fn is None:
            return self._put_out(tensors_in(inputs))
        if self._foreign >= _MAX_FOREIGN and self._called:
            return False
        ours = self._reaches(loss)
        if ours is None:  # recomputed parts hide their parameters
            ours = not self._called or _thread.last is self
        self._foreign = 0 if ours else self._foreign + 1
        return ours

    def _put_out(self, inputs: list[torch.Tensor]) -> bool:
        if len(_owners) == 1:
            return not self._called or _thread.last is self
        for owner in tuple(_owners):
            if any(owner.has_put_out(tensor) for tensor in inputs):
                return owner is self
        return not self._called or _thread.last is self

    def has_put_out(self, tensor: torch.Tensor) -> bool:
        """Say if a tensor is, or is a view of, what the last forward pass returned."""
        base = tensor._base  # noqa: SLF001 - torch has no other way to ask
        seen = [output() for output in self._outputs]
        return any(output is tensor or output is base for output in seen if output is not None)

    def _reaches(self, loss: torch.Tensor) -> bool | None:
        """Say if parameters of ours are in the graph; None if there are none at all in it."""
        stack, seen = [loss.grad_fn], set[Any]()
        others = list[torch.Tensor]()
        while stack and len(seen) < _MAX_NODES:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)  # of AccumulateGrad
            if isinstance(leaf, torch.Tensor):
                if self._is_ours(leaf):
                    return True
                others.append(leaf)
            stack.extend(following for following, _ in node.next_functions)
        if stack or not others:
            return None
        self._look()
        return any(self._is_ours(leaf) for leaf in others)

    def _is_ours(self, leaf: torch.Tensor) -> bool:
        known = self._known.get(id(leaf))
        return known is not None and known() is leaf

    def _look(self) -> None:
        """Find the parameters anew: some may have been added or replaced."""
        roots = [root() for root in self._roots]
        self._known = {
            id(parameter): weakref.ref(parameter)
            for root in roots
            if root is not None
            for parameter in root.parameters()
        }
