"""What is captured of a step whose weights are arrays with names, whoever computed them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Immediate
from trainwarden.model import Collection, Mode, TensorInfo
from trainwarden.stats.dtypes import KINDS
from trainwarden.stats.features import Features
from trainwarden.stats.reductions import Tensor

Array = npt.NDArray[Any]
_BIASES = ("bias", "b", "beta")
_MAX_ROWS = 2000  # of inputs that are looked at
_MATRIX = 2


class Leaf(NamedTuple):
    """One array: its words, its dtype, as (outputs, inputs, …) if it is a matrix or a kernel."""

    array: Array
    dtype: str

    def like(self, other: Leaf) -> bool:
        """Say whether what lies between the two is a change."""
        return self.dtype == other.dtype and self.array.shape == other.array.shape


def outputs_last(name: str, dimensions: int) -> bool:
    """Say whether an array has its outputs last, as in ``x @ w``.

    A matrix has, and what is called ``kernel``; an ``embedding`` has not.
    """
    last = name.rpartition(".")[2]
    matrix = dimensions == _MATRIX and not last.startswith("embedding")
    return matrix or (last == "kernel" and dimensions >= _MATRIX)


def outputs_first(array: Array) -> Array:
    """Return a view as rules expect it, (outputs, inputs, …), of one with its outputs last."""
    return np.moveaxis(array, (-1, -2), (0, 1))


def leaf(name: str, array: Array) -> Leaf | None:
    """Copy an array, as the rules expect it; None if nothing can be said of it.

    Args:
        name: Its path, with dots.
        array: On the host.
    """
    dtype = str(array.dtype)
    if dtype not in KINDS or array.size == 0:
        return None
    if outputs_last(name, array.ndim):
        array = outputs_first(array)
    words = KINDS[dtype].storage
    dense = np.array(array, order="C")  # device memory may be given to the next step
    return Leaf(dense if dense.dtype == words else dense.view(words), dtype)


class ArraySteps(Immediate):
    """Follows steps one after the other.

    Args:
        session: Where drafts go.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step, self._passes = session.options.schedule.start, 0
        self._previous: dict[str, Leaf] = {}
        self._features: Features | None = None

    def begin(self, steps: int = 1) -> Draft | None:
        """Return the draft of the next step, or of the first that is saved of so many; or None."""
        for step in range(self._step, self._step + steps):
            if self._session.due(step):
                return self._session.draft(step, Mode.TRAIN, step)
        return None

    def fill(
        self,
        draft: Draft,
        weights: Mapping[str, Leaf],
        gradients: Mapping[str, Leaf],
        *,
        loss: float | None = None,
        rate: float | None = None,
        kinds: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add the facts of a step; modules are as deep as they come.

        Args:
            draft: Of the step.
            weights: By path.
            gradients: By path.
            loss: If it is known.
            rate: Learning rate, if it is known.
            kinds: Path → kind of module, as far as it is known.
        """
        if loss is not None:
            draft.scalar(Collection.LOSSES, "loss", loss)
        if rate is not None:
            draft.scalar(Collection.OPTIMIZER, "lr_0", rate)
        depths: dict[str, int] = {}
        for path, one in weights.items():
            self._add(draft, path, one, depths, kinds.get(path, ""))
        for path, one in gradients.items():
            self._add(draft, path, one, depths, kinds.get(path, ""), gradient=True)

    def inputs(self, draft: Draft, x: Array) -> None:
        """Add what the model was given, if it has rows and columns: of up to 2,000 rows."""
        if x.ndim != _MATRIX or x.dtype.kind != "f" or not len(x):
            return
        rows = np.ascontiguousarray(x[:: -(-len(x) // _MAX_ROWS)], dtype=np.float64)
        info = TensorInfo("input/0", Collection.INPUTS.value, rows.shape[1:], "float64")
        draft.measure([self._session.row(info)], [Tensor(rows, "float64")])
        if self._features is None or self._features.total != rows.shape[1]:
            self._features = Features(rows.shape[1])
        kept = np.ascontiguousarray(rows[:, self._features.kept])
        facts = self._features.add(kept, samples=len(kept), size=len(x))
        draft.facts(Collection.BATCH, facts, "input/0.")

    def end(self, draft: Draft | None, steps: int = 1) -> None:
        """A step is made, or several; it is told, if it is saved."""
        self._step += steps
        if draft is not None:
            self._session.submit(draft)

    def evaluate(self, loss: Any, metrics: Mapping[str, float] | None = None) -> None:
        """Save a validation pass."""
        draft = self._session.draft(max(self._step - 1, 0), Mode.EVAL, self._passes)
        self._passes += 1
        draft.scalar(Collection.LOSSES, "loss", float(loss))
        draft.facts(Collection.METRICS, metrics or {})
        self._session.submit(draft)

    def _add(
        self,
        draft: Draft,
        path: str,
        leaf: Leaf,
        depths: dict[str, int],
        kind: str,
        *,
        gradient: bool = False,
    ) -> None:
        module, _, last = path.rpartition(".")
        name = f"gradient/{path}" if gradient else path
        own = Collection.BIASES if last in _BIASES else Collection.WEIGHTS
        collection = (Collection.GRADIENTS if gradient else own).value
        depth = depths.setdefault(module, len(depths))
        if not self._session.options.wants(collection, name):
            return
        kind = kind or ("Embedding" if last.startswith("embedding") else "")
        info = TensorInfo(name, collection, leaf.array.shape, leaf.dtype, module, kind, depth)
        before = None if gradient else self._previous.get(path)
        if before is not None and not before.like(leaf):
            before = None
        told = Tensor(
            leaf.array,
            leaf.dtype,
            None if before is None else before.array,
            per_unit=leaf.array.ndim >= _MATRIX,
        )
        draft.measure([self._session.row(info)], [told])
        if not gradient:
            self._previous[path] = leaf
