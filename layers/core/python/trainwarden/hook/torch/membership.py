"""Which parameters the optimizers have, which get gradients, and what else the optimizers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from trainwarden.hook.draft import Draft
from trainwarden.hook.torch.optimizers import owned_by
from trainwarden.model import Collection

SETTLED = 2  # steps after which all optimizers of a loop stepped once


@dataclass(frozen=True)
class Members:
    """Trainable parameters of the watched modules, and the tensors of the optimizers.

    Args:
        parameters: Of the watched modules, shared ones once.
        optimizers: Those known to step over them.
    """

    parameters: Sequence[torch.Tensor]
    optimizers: Sequence[Optimizer]

    def add(self, draft: Draft, *, settled: bool) -> None:
        """Add how many trainable tensors there are, how many in no optimizer, and the rest.

        Args:
            draft: Gets the facts; none of them while an optimizer may be unknown.
            settled: All optimizers are known.
        """
        held = frozenset[int]().union(*(owned_by(optimizer) for optimizer in self.optimizers))
        trainable = [id(p) for p in self.parameters if p.requires_grad]
        without = len(trainable) - len(held.intersection(trainable))
        if without and not settled:
            return
        ours = held.intersection(map(id, self.parameters))
        draft.scalar(Collection.LOOP, "parameters", float(len(trainable)))
        draft.scalar(Collection.LOOP, "parameters_without_optimizer", float(without))
        draft.scalar(Collection.LOOP, "optimizer_tensors", float(len(held)))
        draft.scalar(Collection.LOOP, "optimizer_tensors_foreign", float(len(held) - len(ours)))

    def add_gradientless(self, draft: Draft, optimizer: Optimizer) -> None:
        """Add how many trainable tensors an optimizer has to step over without a gradient.

        Args:
            draft: Gets the fact; several optimizers add up.
            optimizer: About to step.
        """
        bare = [id(p) for p in self.parameters if p.requires_grad and p.grad is None]
        found = len(owned_by(optimizer).intersection(bare)) if bare else 0
        name = "parameters_without_gradient"
        before = draft.scalars.get(Collection.LOOP.value, {}).get(name, 0.0)
        draft.scalar(Collection.LOOP, name, before + found)
