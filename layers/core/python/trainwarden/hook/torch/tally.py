"""Losses and class labels of one saved step or one evaluation pass, before they are read."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from trainwarden.hook.torch.objective import Objectives
from trainwarden.hook.torch.views import View, tensors_in, view
from trainwarden.stats.dtypes import Array

IGNORED = -100  # torch's default ignore_index
MAX_CLASSES = 1000
_RANGE = 2**16  # integers so close together are counted, others sorted
MAX_WAITING = 64  # losses that are kept as they are


class _Sums:
    """Sums of losses and weights, on the devices where the losses are: nothing waits for those."""

    def __init__(self) -> None:
        self._sums: dict[torch.device, torch.Tensor] = {}
        self.weight = 0

    def add(self, value: torch.Tensor, weight: int) -> None:
        """Add ``weight`` times ``value``, one element."""
        wide = torch.float32 if value.device.type == "mps" else torch.float64  # it has no doubles
        with torch.no_grad():
            part = value.to(wide).reshape(()) * weight
            known = self._sums.get(value.device)
            self._sums[value.device] = part if known is None else known + part
        self.weight += weight

    def parts(self) -> list[float]:
        """Read the sums."""
        return [float(value) for value in self._sums.values()]


@dataclass
class Tally:
    """Losses and labels of one saved step or one evaluation pass, before they are read.

    Tensors are kept, not numbers: reading one would wait for an accelerator. Only the last ones
    are kept; those before are added up.

    Attributes:
        losses: Name of the loss → a value and the batch size for each call.
        roots: What ``backward()`` was called on.
        sources: The loss functions whose values alone the roots are; None if none is.
        results: What loss functions returned, by name.
        labels: Label tensor name → class → count.
        batches: Forward passes.
        weighted: A loss weighted its classes.
        objectives: What loss functions were given.
    """

    losses: dict[str, list[tuple[torch.Tensor, int]]] = field(default_factory=dict)
    roots: list[torch.Tensor] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    results: list[tuple[str, weakref.ref[torch.Tensor]]] = field(default_factory=list)
    labels: dict[str, dict[int, int]] = field(default_factory=dict)
    batches: int = 0
    weighted: bool = False
    objectives: Objectives = field(default_factory=Objectives)
    _sums: dict[str, _Sums] = field(default_factory=dict)
    _root_sums: _Sums = field(default_factory=_Sums)

    def add(self, name: str, value: Any, weight: int) -> None:
        """Add one batch's loss; ``value`` may be unreduced."""
        if isinstance(value, torch.Tensor) and value.numel():
            # A copy: gradient accumulation often goes on with ``loss /= n``.
            seen = value.detach().to(torch.float32, copy=True)
            found = self.losses.setdefault(name, [])
            found.append((seen if seen.numel() == 1 else seen.mean(), weight))
            if len(found) > MAX_WAITING:
                self._sums.setdefault(name, _Sums()).add(*found.pop(0))

    def keep_only(self, name: str) -> None:
        """Forget all losses but one, and what ``backward()`` was called on."""
        self.losses = {name: self.losses.get(name, [])}
        self._sums = {known: sums for known, sums in self._sums.items() if known == name}
        self.roots.clear()
        self._root_sums = _Sums()

    def mean(self, name: str) -> float | None:
        """Mean over the batches, weighted by batch size; None if there is none."""
        found = self.losses.get(name)
        if not found:
            return None
        before = self._sums.get(name) or _Sums()
        total = before.weight + sum(weight for _, weight in found)
        parts = [float(value) * weight for value, weight in found]
        return _sum(before.parts() + parts) / total

    def result(self, name: str, value: Any) -> None:
        """Remember what a loss function returned, until ``backward()`` is called."""
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            self.results.append((name, weakref.ref(value)))
            del self.results[:-MAX_WAITING]

    def root(self, true: torch.Tensor) -> None:
        """Add what ``backward()`` is called on, without loss scaling."""
        if true.numel() != 1:
            return
        self.roots.append(true.detach().clone())
        if len(self.roots) > MAX_WAITING:
            self._root_sums.add(self.roots.pop(0), 1)
        source = next((name for name, seen in self.results if _comes_from(true, seen())), None)
        if source not in self.sources:
            self.sources.append(source)
        self.results.clear()

    def objective(self) -> float | None:
        """Sum of everything ``backward()`` was called on since the last update."""
        if not self.roots:
            return None
        return _sum(self._root_sums.parts() + [float(root) for root in self.roots])

    def split_last(self) -> Tally:
        """Take the last batch out: it was no evaluation."""
        last = Tally(roots=self.roots, sources=self.sources, batches=1, _root_sums=self._root_sums)
        for name, found in self.losses.items():
            if found:
                last.losses[name] = [found.pop()]
        if self.batches <= 1:
            last.labels, self.labels = self.labels, {}
            last.objectives, self.objectives = self.objectives, last.objectives
        self.losses = {name: found for name, found in self.losses.items() if found}
        self.roots, self.sources, self.batches = [], [], self.batches - 1
        self._root_sums = _Sums()
        return last

    def count(self, name: str, target: Any) -> None:
        """Count the classes of a batch's labels."""
        found = classes_in(target)
        if found is None:
            return
        counts = self.labels.setdefault(name, {})
        for label, number in zip(*found, strict=True):
            if label != IGNORED:
                counts[label] = counts.get(label, 0) + number
        if len(counts) > MAX_CLASSES:
            self.labels[name] = {}


def _sum(values: list[float]) -> float:
    """Add exactly; infinities of both signs make NaN, as in torch."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(values)


def classes_in(target: Any) -> tuple[list[int], list[int]] | None:
    """Return class labels and how often each occurs; None if these are no class labels.

    Class indices, zeros and ones, and one-hot rows are class labels.
    """
    if not isinstance(target, torch.Tensor) or not target.numel():
        return None
    found = view(target)
    if found is None:
        return None
    array = found.array
    if array.dtype.kind not in "iub":
        array = _as_classes(found)
    labels, counts = _counted(array)
    if len(labels) > MAX_CLASSES:
        return None
    return labels.tolist(), counts.tolist()


def class_of_each(target: torch.Tensor) -> Array | None:
    """Return the class of each row (N,); None if rows have none, or several."""
    found = view(target) if target.dim() and target.numel() else None
    if found is None:
        return None
    array = found.array if found.array.dtype.kind in "iub" else _as_classes(found)
    return array.reshape(-1) if array.size == target.shape[0] else None


def _counted(array: Array) -> tuple[Array, Array]:
    """Return the different integers and how often each occurs.

    All targets are counted, and those of an image are millions: sorting them takes ten times as
    long as counting.
    """
    if array.size:
        low, high = int(array.min()), int(array.max())
        if high - low < _RANGE and high < 2**63:
            found = np.bincount(array.reshape(-1).astype(np.int64) - low)
            labels = np.flatnonzero(found)
            return labels + low, found[labels]
    return np.unique(array, return_counts=True)


def _as_classes(found: View) -> Array:
    """Return the classes that floats stand for: zeros and ones, or one-hot rows; else nothing."""
    array, none = found.array, np.empty(0, np.int64)
    if found.dtype not in {"float32", "float64", "float16"}:
        return none
    ones: Array = array == 1
    if not (ones | (array == 0)).all():
        return none
    if array.ndim == 2 and array.shape[1] > 1:  # noqa: PLR2004 - samples, classes
        one_hot = bool((ones.sum(axis=1) == 1).all())
        return np.argmax(ones, axis=1) if one_hot else none
    return ones


def _comes_from(root: torch.Tensor, result: torch.Tensor | None) -> bool:
    """Say if ``root`` is ``result``, or ``result`` times or divided by something."""
    if result is None or root is result:
        return result is not None
    node = root.grad_fn
    if node is None or node.name() not in {"DivBackward0", "MulBackward0"}:
        return False
    return node.next_functions[0][0] is result.grad_fn


def batch_size(arguments: Sequence[Any]) -> int:
    """Return the length of the first tensor with a batch dimension; 1 if there is none."""
    for tensor in tensors_in(tuple(arguments)):
        if tensor.dim():
            return max(int(tensor.shape[0]), 1)
    return 1
