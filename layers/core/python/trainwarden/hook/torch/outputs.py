"""What a module or a function put out: its row, its statistics, the activity of its channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.batches import MAX_ELEMENTS, measure, sample_of
from trainwarden.hook.torch.functions import Bounds
from trainwarden.hook.torch.views import View, dtype_name, view
from trainwarden.model import Channels, FloatArray, TensorInfo
from trainwarden.stats.catalog import Flag
from trainwarden.stats.merging import add_flags
from trainwarden.stats.reductions import Tensor, channel_columns, channels

CHANNEL_ELEMENTS = 2**18  # looked at for the activity of channels
FEW, FEW_FOR_CHANNELS = 2**11, 2**14  # where tensors are measured from samples


@dataclass(frozen=True)
class Output:
    """Where a tensor comes from.

    Attributes:
        name: Of its row.
        collection: Of its row.
        module: Path.
        kind: ``ReLU``.
        depth: Position in forward order; -1 if unknown.
        bounds: Where it saturates; None if it does not.
        relu_like: Count the activity of its channels.
        convolved: Sequences have their channels second, not last.
    """

    name: str
    collection: str
    module: str = ""
    kind: str = ""
    depth: int = -1
    bounds: Bounds = None
    relu_like: bool = False
    convolved: bool = False

    def axis(self, dimensions: int) -> int:
        """Images (N, C, H, W) and vectors (N, F) have channels second, sequences (N, T, F) last."""
        return 1 if dimensions in {2, 4, 5} or (dimensions == 3 and self.convolved) else -1  # noqa: PLR2004 - see above


class Outputs:
    """Measures outputs for a draft.

    Args:
        session: Whose layout gets the rows.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[str, int] = {}

    def add(self, draft: Draft, output: Output, tensor: torch.Tensor) -> None:
        """Add a tensor, as it is now: what comes next may work in place."""
        row = self._rows.get(output.name)
        if row is None:
            row = self._rows[output.name] = self._session.row(_info(output, tensor))
        if draft.rests(row):
            return
        if draft.exact:
            self._whole(draft, row, output, tensor)
            return
        # Between two layers every cache is cold: no more than a copy is made there.
        part = _part_of(tensor.shape, FEW_FOR_CHANNELS, output.axis(tensor.dim()))
        kept: View | torch.Tensor | None
        if tensor.is_cpu:
            whole = view(tensor)
            kept = None if whole is None else View(whole.array[part].copy(), whole.dtype)
        else:
            kept = tensor.detach()[part].clone()
        if kept is not None:
            draft.later(partial(_measure_part, draft, row, output, tensor.shape, kept))

    def _whole(self, draft: Draft, row: int, output: Output, tensor: torch.Tensor) -> None:
        sample, sampled = sample_of(tensor, MAX_ELEMENTS)
        found = view(sample)
        if found is None:
            return
        activity = None
        if output.relu_like and found.array.ndim and not tensor.is_complex():
            # Counting is cheap, and a channel must be seen often before it may be called dead.
            more = view(sample_of(tensor, CHANNEL_ELEMENTS)[0]) or found if sampled else found
            activity = draft.channels[output.name] = _activity(output, more)
        finish = partial(_finish, activity, Flag.SAMPLED if sampled else 0)
        measure(draft, [row], [Tensor(found.array, found.dtype, bounds=output.bounds)], finish)


@lru_cache(maxsize=1024)
def _part_of(shape: tuple[int, ...], most: int, axis: int) -> tuple[slice, ...]:
    """Return which samples, and which places of them, make about ``most`` elements of a tensor.

    All along ``axis``; evenly spread along the others.
    """
    elements = math.prod(shape)
    if not shape or elements <= most:
        return ()
    steps = [1] * len(shape)
    if len(shape) > 1:
        steps[0] = -(-shape[0] // max(1, shape[0] * most // elements))
        elements = elements // shape[0] * -(-shape[0] // steps[0])
    inner = [d for d in range(1, len(shape)) if d != axis % len(shape)]
    if elements > most and inner:
        step = math.ceil((elements / most) ** (1 / len(inner)))
        steps = [step if d in inner else one for d, one in enumerate(steps)]
    return tuple(slice(None, None, step) for step in steps)


def _measure_part(
    draft: Draft, row: int, output: Output, shape: torch.Size, kept: View | torch.Tensor
) -> None:
    """Measure some of a tensor; ``kept`` is a copy of a part."""
    found = view(kept) if isinstance(kept, torch.Tensor) else kept
    if found is None:
        return
    array, finish = found.array, None
    few = array[_part_of(array.shape, FEW, output.axis(array.ndim))]
    activity = None
    if output.relu_like and array.ndim and array.dtype.kind != "c":
        activity = draft.channels[output.name] = _activity(output, found)
    flags = Flag.SAMPLED if few.size < shape.numel() else 0
    if flags or activity is not None:
        finish = partial(_finish, activity, flags)
    draft.measure([row], [Tensor(few, found.dtype, bounds=output.bounds)], finish)


def _info(output: Output, tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(
        name=output.name,
        collection=output.collection,
        shape=tuple(tensor.shape[1:]),
        dtype=dtype_name(tensor.dtype),
        module=output.module,
        kind=output.kind,
        depth=output.depth,
    )


def _activity(output: Output, found: View) -> Channels:
    return channels(found.array, output.axis(found.array.ndim), dtype=found.dtype)


def _finish(activity: Channels | None, flags: int, table: FloatArray) -> None:
    if flags:
        add_flags(table, flags)
    if activity is not None:
        channel_columns(table[0], activity)
