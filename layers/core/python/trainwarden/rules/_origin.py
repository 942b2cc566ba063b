"""Where the first NaN came from, and what the loss did before: the hook's facts in ``history``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from trainwarden.model import Observation

RANK, LOSS = "order@", "loss@"
_GROWTH = 10.0  # times the median of the losses before: it grew before it broke
_OPERATIONS = {"operation": "forward", "loss_operation": "loss", "data": "nan_input"}
_COLLECTIONS: Mapping[str, str] = {
    "weights": "weights",
    "biases": "weights",
    "buffers": "weights",
    "inputs": "nan_input",
    "labels": "nan_input",
    "gradients": "backward",
}

_REMEDIES: Mapping[str, tuple[str, ...]] = {
    "nan_input": (
        "Check the data of that step: missing values, a division in the preprocessing.",
        "Fill or drop what is missing before it is batched.",
    ),
    "forward": (
        "Look at the named operation: log, sqrt, division or a norm of zero needs an eps.",
        "Lower the learning rate, or clip gradients, if activations grew before.",
        "Under fp16 use GradScaler, or bf16, whose range is that of float32.",
    ),
    "loss": (
        "Give the loss logits, or clamp what its logarithm or root sees by an eps.",
        "Check the labels of that step.",
    ),
    "backward": (
        "Look for sqrt, norm or a power at zero: the value is finite, its slope is not; add eps.",
        "Clip gradients: torch.nn.utils.clip_grad_norm_(parameters, 1.0).",
    ),
    "weights": (
        "The update of the step before broke them: look at its gradients and learning rate.",
        "Clip gradients: torch.nn.utils.clip_grad_norm_(parameters, 1.0).",
        "Load the last checkpoint that is finite.",
    ),
    "grew": (
        "Lower the learning rate, or warm it up: the loss grew before it broke.",
        "Clip gradients: torch.nn.utils.clip_grad_norm_(parameters, 1.0).",
    ),
}


class Origin(NamedTuple):
    """The first of what is not finite, in the order of computation.

    Attributes:
        kind: ``nan_input``, ``forward``, ``loss``, ``backward`` or ``weights``.
        tensor: Its name.
        module: Path of the module it belongs to; empty if unknown.
        operation: What was computed there: ``log``; empty if unknown.
        order: Names of the first ones; empty if the hook did not rank them.
    """

    kind: str
    tensor: str
    module: str = ""
    operation: str = ""
    order: tuple[str, ...] = ()


def origin(obs: Observation, name: str, *, ranked: bool = True) -> Origin:
    """Return where it began, if ``ranked`` as the hook found it; else ``name`` is the first."""
    history = obs.scalars.get("history", {}) if ranked else {}
    ranks = {key[len(RANK) :]: rank for key, rank in history.items() if key.startswith(RANK)}
    order = tuple(sorted(ranks, key=lambda tensor: (ranks[tensor], tensor)))
    first = order[0] if order else name
    prefix, _, place = first.partition("/")
    if prefix in _OPERATIONS:
        module, _, operation = place.rpartition(".")
        return Origin(_OPERATIONS[prefix], first, module, operation, order)
    row = obs.layout.row_of.get(first)
    if row is None:
        return Origin("loss", first, order=order)
    info = obs.layout.tensors[row]
    kind = _COLLECTIONS.get(str(info.collection), "forward")
    return Origin(kind, first, info.module, order=order)


def losses_before(obs: Observation) -> list[tuple[int, float]]:
    """Return step and loss of the last steps before the first loss that is not finite."""
    history = obs.scalars.get("history", {})
    steps = sorted(
        (int(key[len(LOSS) :]), value)
        for key, value in history.items()
        if key.startswith(LOSS) and key[len(LOSS) :].isdigit()
    )
    found: list[tuple[int, float]] = []
    for step, loss in steps:
        if not math.isfinite(loss):
            break
        found.append((step, loss))
    return found


def grew(losses: list[tuple[int, float]]) -> bool:
    """Say if the last loss before the end was far above those before it."""
    if len(losses) < 3:  # noqa: PLR2004 - a median of two says nothing
        return False
    middle = median(loss for _, loss in losses[:-1])
    return losses[-1][1] > _GROWTH * middle > 0


def first_step(obs: Observation) -> int:
    """Return the step of the first loss that is not finite, or this one's."""
    found = obs.scalars.get("window", {}).get("nonfinite_step", math.nan)
    return int(found) if 0 <= found <= obs.step else obs.step


def remedies(source: Origin, losses: list[tuple[int, float]]) -> tuple[str, ...]:
    """Return what to try, most likely first."""
    return _REMEDIES["grew" if grew(losses) else source.kind]


def story(source: Origin, name: str) -> str:
    """Say where it began, if that is more than the name of the first tensor."""
    if source.operation:
        what = {
            "nan_input": f"which {source.operation} was given from outside the model",
            "loss": f"made by {source.operation} in the loss",
        }.get(source.kind, f"made by {source.operation}")
        at = f" at module {source.module}" if source.module else ""
        return what + (at.replace(" at", " after") if source.kind == "loss" else at)
    return f"which began with {source.tensor}" if source.tensor != name else ""


def clean(obs: Observation, start: int, before: list[tuple[int, float]], seen: int) -> str:
    """Say until when all was well."""
    if before and before[-1][0] < obs.step:
        step, loss = before[-1]
        growth = f", {loss / before[0][1]:.3g} times that of step {before[0][0]}"
        return f"; the loss of step {step} was {loss:.4g}{growth if grew(before) else ''}"
    if start < obs.step:
        return f"; the loss is not finite since step {start}"
    return f"; step {seen} was still clean" if seen >= 0 else ""
