"""Tensors as they are, beside the statistics of a step: where somebody asked for them.

They are copied when they are measured, and wait for the uploader in a queue of their own: what is
asked for on top must never push statistics out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainwarden.errors import MalformedObjectError
from trainwarden.hook.rows import Rows
from trainwarden.model import Collection, TensorInfo
from trainwarden.stats.reductions import Tensor
from trainwarden.wire.container import Entry, entry, pack

MAX_STEP_BYTES = 256 * 1024 * 1024
# Of a batch nothing: it may be personal data, and says little about a layer.
COLLECTIONS = frozenset(
    {
        Collection.WEIGHTS.value,
        Collection.BIASES.value,
        Collection.GRADIENTS.value,
        Collection.BUFFERS.value,
        Collection.ACTIVATIONS.value,
    }
)
_CODES = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
_WORDS = ("bfloat16", "float8")  # types of which numpy sees the bits only


class RawStep:
    """The tensors of one step that are saved as they are.

    Args:
        step: Of the run.
        rows: The layout so far.
        wanted: Says if a tensor is saved.
        room: Bytes that there is room for.

    Attributes:
        entries: Name → copy.
        size: Bytes of the copies.
        left_out: Tensors without room, or of a type that safetensors does not know.
    """

    def __init__(
        self,
        step: int,
        rows: Rows,
        wanted: Callable[[TensorInfo], bool],
        *,
        room: int,
    ) -> None:
        self.step, self.size, self.left_out = step, 0, 0
        self.entries: dict[str, Entry] = {}
        self._wanted, self._room = wanted, min(room, MAX_STEP_BYTES)
        self._rows = rows

    def add(self, rows: Sequence[int], tensors: Sequence[Tensor]) -> None:
        """Copy those of the tensors that are wanted, by their rows in the layout."""
        for row, tensor in zip(rows, tensors, strict=True):
            if row >= 0:
                self._add(self._rows.info(row), tensor)

    def _add(self, info: TensorInfo, tensor: Tensor) -> None:
        if not self._wanted(info):
            return
        if self.size + tensor.x.nbytes > self._room:
            self.left_out += 1
            return
        try:
            kept = entry(np.array(tensor.x, order="C"), _code(tensor.dtype))
        except MalformedObjectError:
            self.left_out += 1
            return
        self.size += kept.data.nbytes
        self.entries[info.name] = kept

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """Return them as a safetensors file.

        Raises:
            MalformedObjectError: so many that no header holds their names.
        """
        return pack(self.entries, {**metadata, "step": str(self.step)})


def suspects(rows: Rows, named: Callable[[str], bool]) -> Callable[[TensorInfo], bool]:
    """Return what says if a tensor is of a suspect layer.

    Args:
        rows: The layout so far.
        named: Says by its name if a tensor is suspect; its whole layer is.
    """
    known = rows.layout.tensors
    layers = {one.module for one in known if one.module and named(one.name)}

    def wanted(info: TensorInfo) -> bool:
        return info.collection in COLLECTIONS and (info.module in layers or named(info.name))

    return wanted


class RawWaiting:
    """Steps on their way from the training thread to the uploader's: bounded, without a lock.

    Args:
        max_bytes: That may wait.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._steps: deque[RawStep] = deque()
        self._pushed, self._done = 0, 0  # bytes; each has one writer

    def __bool__(self) -> bool:
        """True if something waits."""
        return bool(self._steps)

    @property
    def room(self) -> int:
        """Bytes that may be added."""
        return max(self._max_bytes - (self._pushed - self._done), 0)

    def push(self, raw: RawStep) -> None:
        """Add a step; in the training thread."""
        self._pushed += raw.size
        self._steps.append(raw)

    @property
    def first(self) -> RawStep | None:
        """The oldest; in the uploader's thread."""
        return self._steps[0] if self._steps else None

    def done(self) -> None:
        """The oldest is stored, or given up; in the uploader's thread."""
        self._done += self._steps.popleft().size


def _code(dtype: str) -> str:
    if dtype.startswith(_WORDS):
        return _CODES.get(dtype, dtype)  # a type that safetensors does not know is refused
    return ""
