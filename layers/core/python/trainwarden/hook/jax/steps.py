"""What is captured of a step whose weights are a pytree."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Immediate
from trainwarden.model import Collection, Mode, TensorInfo
from trainwarden.stats.dtypes import KINDS
from trainwarden.stats.features import Features
from trainwarden.stats.reductions import Tensor

_BIASES = ("bias", "b", "beta")
_MAX_ROWS = 2000  # of inputs that are looked at
_MATRIX = 2
_NUMBER = re.compile(r"(\d+)")


class _Leaf(NamedTuple):
    """One array: its words, its dtype, as (outputs, inputs) if it is a Flax kernel."""

    array: npt.NDArray[Any]
    dtype: str


class Steps(Immediate):
    """Follows the calls of ``observe``.

    Args:
        session: Where drafts go.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._step, self._passes = session.options.schedule.start, 0
        self._previous: dict[str, _Leaf] = {}
        self._features: Features | None = None

    def observe(self, params: Any, grads: Any, loss: Any, inputs: Any, rate: float | None) -> None:
        """Save the step if it is due; the next call is the next step."""
        step, self._step = self._step, self._step + 1
        if not self._session.due(step):
            return
        draft = self._session.draft(step, Mode.TRAIN, step)
        if loss is not None:
            draft.scalar(Collection.LOSSES, "loss", float(loss))
        if rate is not None:
            draft.scalar(Collection.OPTIMIZER, "lr_0", float(rate))
        depths: dict[str, int] = {}
        for path, leaf in _leaves(params).items():
            self._add(draft, path, leaf, depths)
        for path, leaf in _leaves(grads).items():
            self._add(draft, path, leaf, depths, gradient=True)
        if inputs is not None:
            self._add_inputs(draft, np.asarray(inputs))
        self._session.submit(draft)

    def evaluate(self, loss: Any) -> None:
        """Save a validation pass."""
        draft = self._session.draft(max(self._step - 1, 0), Mode.EVAL, self._passes)
        self._passes += 1
        draft.scalar(Collection.LOSSES, "loss", float(loss))
        self._session.submit(draft)

    def _add(
        self,
        draft: Draft,
        path: str,
        leaf: _Leaf,
        depths: dict[str, int],
        *,
        gradient: bool = False,
    ) -> None:
        module, _, last = path.rpartition(".")
        collection = Collection.BIASES if last in _BIASES else Collection.WEIGHTS
        info = TensorInfo(
            f"gradient/{path}" if gradient else path,
            (Collection.GRADIENTS if gradient else collection).value,
            leaf.array.shape,
            leaf.dtype,
            module,
            "Embedding" if last == "embedding" else "",
            depths.setdefault(module, len(depths)),
        )
        before = None if gradient else self._previous.get(path)
        if before is not None and (before.dtype, before.array.shape) != (
            leaf.dtype,
            leaf.array.shape,
        ):
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

    def _add_inputs(self, draft: Draft, x: npt.NDArray[Any]) -> None:
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


def _leaves(tree: Any) -> dict[str, _Leaf]:
    """Copy the arrays of a pytree to the host: path, with dots → array; others are left out."""
    found: dict[str, _Leaf] = {}
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    kept = [(path, leaf) for path, leaf in pairs if hasattr(leaf, "dtype")]
    arrays = jax.device_get([leaf for _, leaf in kept])  # all in one go
    for (path, _), value in zip(kept, arrays, strict=True):
        name = ".".join(_word(key) for key in path)
        array = np.asarray(value)
        dtype = str(array.dtype)
        if dtype not in KINDS or array.size == 0:
            continue
        last = name.rpartition(".")[2]
        if last == "kernel" or (array.ndim == _MATRIX and last != "embedding"):
            array = _outputs_first(array)
        words = KINDS[dtype].storage
        dense = np.array(array, order="C")  # device memory may be given to the next step
        found[name] = _Leaf(dense if dense.dtype == words else dense.view(words), dtype)
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _outputs_first(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turn (…, inputs, outputs), as in x @ w and in Flax, to (outputs, inputs, …)."""
    return np.moveaxis(array, (-1, -2), (0, 1)) if array.ndim >= _MATRIX else array


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort ``Dense_2`` before ``Dense_10``."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in _NUMBER.split(name)]


def _word(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
