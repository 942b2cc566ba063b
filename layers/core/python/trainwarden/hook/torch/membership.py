"""Which parameters the optimizers have, which get gradients, and what else the optimizers hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim import Optimizer

from trainwarden.hook.session import Draft
from trainwarden.model import Collection

SETTLED = 2  # steps after which all optimizers of a loop stepped once


def add_members(
    draft: Draft,
    parameters: Sequence[torch.Tensor],
    optimizers: Sequence[Optimizer],
    *,
    settled: bool,
) -> None:
    """Add how many trainable tensors there are, and in no optimizer; what optimizers hold.

    Args:
        draft: Gets the facts; none of them while an optimizer may be unknown.
        parameters: Of the watched modules, shared ones once.
        optimizers: Those known to step over them.
        settled: All are known.
    """
    held = {id(p) for optimizer in optimizers for p in _held(optimizer)}
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    ours = {id(parameter) for parameter in parameters}
    without = sum(id(parameter) not in held for parameter in trainable)
    if without and not settled:
        return
    draft.scalar(Collection.LOOP, "parameters", float(len(trainable)))
    draft.scalar(Collection.LOOP, "parameters_without_optimizer", float(without))
    draft.scalar(Collection.LOOP, "optimizer_tensors", float(len(held)))
    draft.scalar(Collection.LOOP, "optimizer_tensors_foreign", float(len(held - ours)))


def add_gradientless(
    draft: Draft, parameters: Sequence[torch.Tensor], optimizer: Optimizer
) -> None:
    """Add how many trainable tensors an optimizer has to step over without a gradient.

    Args:
        draft: Gets the fact; several optimizers add up.
        parameters: Of the watched modules.
        optimizer: About to step.
    """
    held = {id(p) for p in _held(optimizer)}
    found = sum(p.requires_grad and p.grad is None and id(p) in held for p in parameters)
    name = "parameters_without_gradient"
    before = draft.scalars.get(Collection.LOOP.value, {}).get(name, 0.0)
    draft.scalar(Collection.LOOP, name, before + found)


def _held(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
