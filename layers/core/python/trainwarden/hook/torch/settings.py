"""How an optimizer is set: rates, decay, momentum of each parameter group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.optim import Optimizer

from trainwarden.hook.draft import Draft
from trainwarden.model import Collection

MAX_GROUPS = 32  # some have one for each layer, or for each parameter
_PLAIN = ("lr", "weight_decay", "eps")
_DECOUPLED = {"Adam": False, "AdamW": True}  # where torch is too old to say it itself


def add_settings(draft: Draft, optimizer: Optimizer, position: int) -> None:
    """Add the settings of each parameter group.

    Args:
        draft: Gets the facts.
        optimizer: Any.
        position: Its number; 0 counts the steps.
    """
    prefix = f"{position}." if position else ""
    for i, group in enumerate(optimizer.param_groups):
        for name, value in _settings(group, type(optimizer).__name__):
            if name == "lr" or i < MAX_GROUPS:
                draft.scalar(Collection.OPTIMIZER, f"{prefix}{name}_{i}", value)


def _settings(group: Mapping[str, Any], kind: str) -> Iterator[tuple[str, float]]:
    for name in _PLAIN:
        value: Any = group.get(name)
        if isinstance(value, tuple | list):  # Adafactor has two
            value = value[0] if value else None
        if value is not None:
            yield name, float(value)
    betas = group.get("betas")
    momentum = betas[0] if isinstance(betas, tuple | list) and betas else group.get("momentum")
    if momentum is not None:
        yield "momentum", float(momentum)
    yield "adaptive", float("eps" in group or betas is not None)
    decoupled = group.get("decoupled_weight_decay", _DECOUPLED.get(kind))
    if decoupled is not None:
        yield "decoupled", float(decoupled)
