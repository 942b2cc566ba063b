"""Rows of a run's layout, and names as they can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from trainwarden.model import Layout, TensorInfo
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, MAX_TENSORS, tensor_bytes
from trainwarden.wire.names import MAX_COLLECTION_CHARS, MAX_KIND_CHARS, writable

T = TypeVar("T")
MAX_WRITTEN = 20_000  # names remembered; those with a step in them are many
_MANIFEST_ROOM = MAX_MANIFEST_BYTES // 8  # for all that a manifest holds beside the layout


class Say(Protocol):
    """Warns the user, once for each kind of message."""

    def __call__(self, message: str, *, kind: str = "") -> None:
        """Warn."""


class Rows:
    """Gives each tensor its row.

    Args:
        say: Told once of names that are written in another way, and of a layout that is full.
        also: Says in which further collections a tensor is.
    """

    def __init__(
        self, say: Say, also: Callable[[TensorInfo], tuple[str, ...]] = lambda _: ()
    ) -> None:
        self._say, self._also = say, also
        self._rows = dict[str, int]()
        self._tensors: list[TensorInfo] = []
        self._layout, self._bytes = Layout(), 0
        self._written = set[str]()  # names that can be written as they are

    @property
    def layout(self) -> Layout:
        """All rows so far."""
        if len(self._layout.tensors) != len(self._tensors):
            self._layout = Layout(tuple(self._tensors))
        return self._layout

    def row(self, info: TensorInfo) -> int:
        """Return the row of a tensor, a new one for a new name; -1 if the layout is full."""
        name = self.name(info.name)
        row = self._rows.get(name)
        if row is None:
            info = replace(
                info,
                name=name,
                collection=writable(str(info.collection), MAX_COLLECTION_CHARS),
                module=writable(info.module),
                kind=writable(info.kind, MAX_KIND_CHARS),
                also=self._also(info),
            )
            size = self._bytes + tensor_bytes(info)
            if len(self._tensors) >= MAX_TENSORS or size > MAX_MANIFEST_BYTES - _MANIFEST_ROOM:
                self._say(
                    f"only the first {len(self._tensors)} tensors are captured, "
                    "more do not fit into a manifest"
                )
                return -1
            row = self._rows[name] = len(self._tensors)
            self._bytes = size
            self._tensors.append(info)
        return row

    def info(self, row: int) -> TensorInfo:
        """Return the tensor of a row."""
        return self._tensors[row]

    def name(self, name: str) -> str:
        """Return a name as it can be written."""
        found = writable(name)
        if found is not name:
            self._say(
                "names that are too long or cannot be printed are written in another way, "
                f"the first one as {found[:80]!r}",
                kind="name",
            )
        return found

    def named(self, values: Mapping[str, T]) -> dict[str, T]:
        """Return ``values`` under names as they can be written."""
        if self._written.issuperset(values):
            return dict(values)
        found = {self.name(name): value for name, value in values.items()}
        if found.keys() == values.keys() and len(self._written) < MAX_WRITTEN:
            self._written.update(found)
        return found
