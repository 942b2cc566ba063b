"""What a recorded tensor is, told from its name and the collections it was recorded in."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainwarden.model import Collection, Layout, TensorInfo
from trainwarden.trial.recorded import RecordedCell, RecordedSource
from trainwarden.trial.source import Unknown

_FIRST = ("losses", "metrics", "sm_metrics", "gradients", "weights", "biases")
_ALL = frozenset({"all", "default"})
_PER_BATCH = frozenset(
    {
        Collection.ACTIVATIONS.value,
        Collection.INPUTS.value,
        Collection.OUTPUTS.value,
        Collection.LABELS.value,
        "predictions",
    }
)
_FUNCTION = re.compile(r"(relu|tanh|sigmoid)[^/]*_(input|output)", re.IGNORECASE)
_KINDS = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}
_BOUNDS = {  # SageMaker's windows on the inputs, the hook's on the outputs
    ("tanh", "input"): (-9.4999, 9.4999),
    ("sigmoid", "input"): (-23.0, 16.99999),
    ("tanh", "output"): (-0.96, 0.96),
    ("sigmoid", "output"): (0.02, 0.98),
}


class Role(NamedTuple):
    """How a tensor is reduced.

    Attributes:
        bounds: Where it saturates.
        channels: Its activity is counted along the second axis.
        weight: Its output units are looked at when it is first seen.
    """

    bounds: tuple[float, float] | None = None
    channels: bool = False
    weight: bool = False


def layout_of(source: RecordedSource) -> tuple[Layout, list[Role]]:
    """Return a row for each tensor in the order in which they were recorded, and its role."""
    tensors: list[TensorInfo] = []
    roles: list[Role] = []
    depths: dict[str, int] = {}
    for name in source.tensors:
        by_worker = next(iter(source.cells(name).values()))
        shape, dtype = _look(next(iter(by_worker.values())))
        collection = _collection(source, name)
        function = _FUNCTION.search(name)
        what = (function[1].lower(), function[2].lower()) if function else ("", "")
        relu = what == ("relu", "output") or "relu" in collection.lower()
        own = name.removeprefix("gradient/")
        if collection in ("weights", "gradients", "biases"):
            depths.setdefault(own.rpartition(".")[0], len(depths))
        tensors.append(
            TensorInfo(
                name,
                collection,
                shape[1:] if collection in _PER_BATCH or function else shape,
                dtype,
                kind=_KINDS.get(what[0], ""),
                depth=depths.get(own.rpartition(".")[0], -1),
            )
        )
        roles.append(Role(_BOUNDS.get(what), relu, collection == "weights"))
    return Layout(tuple(tensors)), roles


def _look(cell: RecordedCell) -> tuple[tuple[int, ...], str]:
    try:
        value = cell.value()
    except Unknown:
        return cell.known_shape or (), "float32"
    return value.shape, str(value.dtype) if value.dtype.kind in "biufc" else "bool"


def _collection(source: RecordedSource, name: str) -> str:
    found = [c.name for c in source.collections.values() if c.name not in _ALL and c.holds(name)]
    chosen = next((c for c in _FIRST if c in found), min(found, default=""))
    if chosen:
        return chosen
    return Collection.ACTIVATIONS.value if _FUNCTION.search(name) else Collection.CUSTOM.value
