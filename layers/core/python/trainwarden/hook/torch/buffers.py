"""Running statistics of batch norms, as rows with what changed since the previous saved step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.views import view
from trainwarden.model import Collection, TensorInfo
from trainwarden.stats.dtypes import Array
from trainwarden.stats.reductions import Tensor

_NAMES = ("running_mean", "running_var")


@dataclass
class _Buffer:
    """One buffer, found anew by its name each time: modules may replace it."""

    module: nn.Module
    name: str
    row: int
    previous: Array | None = None  # of type ``dtype``
    dtype: str = ""


class Buffers:
    """The running statistics of the watched modules.

    Args:
        session: Whose layout gets the rows.
        modules: The watched modules.
    """

    def __init__(self, session: Session, modules: Modules) -> None:
        self._session, self._modules = session, modules
        self._walks = -1
        self._buffers: dict[tuple[int, str], _Buffer] = {}
        self._last: Draft | None = None

    def add(self, draft: Draft) -> None:
        """Have them measured, once for each draft, after the pass that changed them."""
        if draft is self._last or Collection.BUFFERS not in self._session.options.collections:
            return
        self._last = draft
        if self._walks != self._modules.walks:
            self._scan()
        tensors, rows = [], []
        for buffer in self._buffers.values():
            tensor = getattr(buffer.module, buffer.name, None)
            found = None if tensor is None else view(tensor)
            if found is None:
                continue
            array, previous = found.array, buffer.previous
            if previous is not None and (
                previous.shape != array.shape or buffer.dtype != found.dtype
            ):
                previous = None
            tensors.append(Tensor(array, found.dtype, previous))
            rows.append(buffer.row)
        draft.measure(rows, tensors)
        if self._session.options.updates:
            measured = dict(zip(rows, tensors, strict=True))
            for buffer in self._buffers.values():
                if buffer.row in measured:
                    buffer.previous = measured[buffer.row].x.copy()
                    buffer.dtype = measured[buffer.row].dtype

    def _scan(self) -> None:
        """Find them, also those of modules that are new since the last walk."""
        known, self._buffers = self._buffers, {}
        for prefix in self._modules.roots:
            for path, module in self._modules.below(prefix):
                if not _normalises(module):
                    continue
                for name in _NAMES:
                    key = (id(module), name)
                    found = known.get(key) or self._found(path, module, name)
                    if found is not None:
                        self._buffers[key] = found
        self._walks = self._modules.walks

    def _found(self, path: str, module: nn.Module, name: str) -> _Buffer | None:
        full = f"{path}.{name}".strip(".")
        if not self._session.options.wants(Collection.BUFFERS.value, full):
            return None
        found = view(getattr(module, name))
        if found is None:  # lazy: not yet born
            return None
        info = TensorInfo(
            name=full,
            collection=Collection.BUFFERS.value,
            shape=tuple(found.array.shape),
            dtype=found.dtype,
            module=path,
            kind=type(module).__name__,
            trainable=False,
        )
        row = self._session.row(info)
        return _Buffer(module, name, row) if row >= 0 else None


def _normalises(module: nn.Module) -> bool:
    """Say whether a module learns running statistics: frozen ones have no momentum."""
    buffers = module._buffers  # noqa: SLF001 - ours would recurse
    return all(buffers.get(name) is not None for name in _NAMES) and hasattr(module, "momentum")
