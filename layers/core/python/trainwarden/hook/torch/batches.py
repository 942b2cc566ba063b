"""Inputs, outputs and labels of a batch: their rows, and how much of them is read."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwarden.hook.session import Session
from trainwarden.hook.torch.views import dtype_name, view
from trainwarden.model import TensorInfo
from trainwarden.stats.reductions import Tensor

MAX_ELEMENTS = 2**16  # of one activation or batch tensor; beyond it whole samples are left out


def sample_of(output: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return whole samples of a batch, evenly spread, so that no more than a limit is read."""
    elements, batch = output.numel(), output.shape[0] if output.dim() > 1 else 1
    if elements <= MAX_ELEMENTS or batch == 1:
        return output, False
    kept = max(1, batch * MAX_ELEMENTS // elements)
    return output.detach()[:: -(-batch // kept)], True


def rows_of(
    session: Session,
    collection: str,
    prefix: str,
    tensors: Sequence[torch.Tensor],
    *,
    numbered: bool = True,
) -> list[tuple[int, Tensor]]:
    """Return row and elements of those tensors of a batch, or of the user's, that are wanted."""
    found = []
    for position, tensor in enumerate(tensors):
        name = f"{prefix}/{position}" if numbered else prefix
        if numbered and not session.options.wants(str(collection), name):
            continue
        sample, _ = sample_of(tensor)
        seen = view(sample)
        if seen is not None:
            info = TensorInfo(
                name=name,
                collection=str(collection),
                shape=tuple(tensor.shape[1:]) if numbered else tuple(tensor.shape),
                dtype=dtype_name(tensor.dtype),
            )
            found.append((session.row(info), Tensor(seen.array, seen.dtype)))
    return found
