"""Inputs, outputs and labels of a batch: their rows, and how much of them is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.views import view
from trainwarden.model import Collection, FloatArray, TensorInfo
from trainwarden.stats.catalog import Flag
from trainwarden.stats.merging import add_flags
from trainwarden.stats.packing import SMALL
from trainwarden.stats.reductions import Tensor

MAX_TENSORS = 4  # inputs or outputs of one forward pass
MAX_ELEMENTS = 2**15  # read of one activation, input or output; of more, whole samples are left out


def sample_of(tensor: torch.Tensor, most: int = MAX_ELEMENTS) -> tuple[torch.Tensor, bool]:
    """Return whole samples of a batch, evenly spread, about ``most`` elements; True if some."""
    elements, batch = tensor.numel(), tensor.shape[0] if tensor.dim() > 1 else 1
    if elements <= most or batch == 1:
        return tensor, False
    kept = max(1, batch * most // elements)
    return tensor.detach()[:: -(-batch // kept)], True


def add_batch(
    session: Session,
    draft: Draft,
    collection: Collection,
    prefix: str,
    tensors: Sequence[torch.Tensor],
) -> None:
    """Add a batch's inputs, outputs or labels to a draft: those that are wanted, sampled."""
    rows: list[int] = []
    found: list[Tensor] = []
    flags: list[int] = []
    for position, tensor in enumerate(tensors[:MAX_TENSORS]):
        name = f"{prefix}/{position}"
        sample, sampled = sample_of(tensor)
        seen = view(sample) if session.options.wants(collection.value, name) else None
        if seen is not None:
            info = TensorInfo(name, collection.value, tuple(tensor.shape[1:]), seen.dtype)
            rows.append(session.row(info))
            found.append(Tensor(seen.array, seen.dtype))
            flags.append(Flag.SAMPLED if sampled else 0)
    measure(draft, rows, found, partial(_flag, flags) if any(flags) else None)


def measure(
    draft: Draft,
    rows: Sequence[int],
    tensors: list[Tensor],
    finish: Callable[[FloatArray], object] | None = None,
) -> None:
    """Have tensors measured that may change before the step is made.

    Copies of small ones wait for the weights: statistics are cheaper together. Large ones, which
    are measured one by one anyway, are so at once.
    """
    if all(tensor.x.size <= SMALL for tensor in tensors):
        draft.measure(
            rows, [tensor._replace(x=tensor.x.copy(order="K")) for tensor in tensors], finish
        )
    else:
        draft.measure(rows, tensors, finish)
        draft.settle()


def _flag(flags: list[int], table: FloatArray) -> None:
    add_flags(table, np.array(flags))


def add_tensor(
    session: Session, draft: Draft, collection: str, name: str, tensor: torch.Tensor
) -> None:
    """Add a tensor of the user's to a draft, all of it."""
    seen = view(tensor)
    if seen is not None:
        info = TensorInfo(name, collection, tuple(tensor.shape), seen.dtype)
        draft.measure([session.row(info)], [Tensor(seen.array, seen.dtype)])
        draft.settle()
