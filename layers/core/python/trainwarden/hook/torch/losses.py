"""Losses and labels: from the loss module, or found where the loss is computed.

With ``loss_fn=None`` three sources are watched, only while a step is saved or evaluation runs:
what ``backward()`` is called on, ``output.loss`` of the model, and the loss functions of
``torch.nn.functional`` (through which torch's loss modules go too).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Callback, Patch
from trainwarden.hook.torch.views import View, tensors_in, view
from trainwarden.model import Mode
from trainwarden.stats.dtypes import Array

LOSS = "loss"
IGNORED = -100  # torch's default ignore_index
MAX_CLASSES = 1000
_FUNCTIONS = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)


@dataclass
class Tally:
    """Losses and labels of one saved step or one evaluation pass, before they are read.

    Tensors are kept, not numbers: reading one would wait for an accelerator.

    Attributes:
        losses: Name of the loss → a value and the batch size for each call.
        roots: What ``backward()`` was called on.
        sources: For each root, the loss function whose value it is alone; None if none is.
        results: What loss functions returned, by name.
        labels: Label tensor name → class → count.
        batches: Forward passes.
    """

    losses: dict[str, list[tuple[torch.Tensor, int]]] = field(default_factory=dict)
    roots: list[torch.Tensor] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    results: list[tuple[str, weakref.ref[torch.Tensor]]] = field(default_factory=list)
    labels: dict[str, dict[int, int]] = field(default_factory=dict)
    batches: int = 0

    def add(self, name: str, value: Any, weight: int) -> None:
        """Add one batch's loss; ``value`` may be unreduced."""
        if isinstance(value, torch.Tensor) and value.numel():
            # A copy: gradient accumulation often goes on with ``loss /= n``.
            seen = value.detach().to(torch.float32, copy=True)
            self.losses.setdefault(name, []).append(
                (seen if seen.numel() == 1 else seen.mean(), weight)
            )

    def mean(self, name: str) -> float | None:
        """Mean over the batches, weighted by batch size; None if there is none."""
        found = self.losses.get(name)
        if not found:
            return None
        total = sum(weight for _, weight in found)
        return math.fsum(float(value) * weight for value, weight in found) / total

    def root(self, true: torch.Tensor) -> None:
        """Add what ``backward()`` is called on, without loss scaling."""
        if true.numel() != 1:
            return
        self.roots.append(true.detach().clone())
        self.sources.append(
            next((name for name, seen in self.results if _comes_from(true, seen())), None)
        )
        self.results.clear()

    def objective(self) -> float | None:
        """Sum of everything ``backward()`` was called on since the last update."""
        return math.fsum(float(root) for root in self.roots) if self.roots else None

    def split_last(self) -> Tally:
        """Take the last batch out: it was no evaluation."""
        last = Tally(roots=self.roots, sources=self.sources, batches=1)
        for name, found in self.losses.items():
            if found:
                last.losses[name] = [found.pop()]
        if self.batches <= 1:
            last.labels, self.labels = self.labels, {}
        self.losses = {name: found for name, found in self.losses.items() if found}
        self.roots, self.sources, self.batches = [], [], self.batches - 1
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
    labels, counts = np.unique(array, return_counts=True)
    if len(labels) > MAX_CLASSES:
        return None
    return [int(label) for label in labels], counts.tolist()


def _as_classes(found: View) -> Array:
    """Return the classes that floats stand for: zeros and ones, or one-hot rows; else nothing."""
    array, none = found.array, np.empty(0, np.int64)
    if found.dtype not in {"float32", "float64", "float16"} or not np.isin(array, (0, 1)).all():
        return none
    if array.ndim == 2 and array.shape[1] > 1:  # noqa: PLR2004 - samples, classes
        return array.argmax(axis=1) if (array.sum(axis=1) == 1).all() else none
    return array


class LossFinder:
    """Watches torch itself for losses.

    Args:
        session: Guards what is ours around the calls of others.
        tally: Returns where losses go at the moment, None for nowhere.
        label: Told each loss function's target.
    """

    def __init__(
        self,
        session: Session,
        tally: Callable[[], Tally | None],
        label: Callable[[Tally, Any], None],
    ) -> None:
        self._session, self._tally, self._label = session, tally, label
        self._inside = False
        self._scaled: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._backward = Patch(torch.autograd, "backward", self._around_backward)
        self._functions = [
            Patch(functional, name, partial(self._around_function, name))
            for name in _FUNCTIONS
            if hasattr(functional, name)
        ]

    def stop(self) -> None:
        """Take every patch out."""
        self.watch_backward(on=False)
        self.watch_functions(on=False)

    def watch_backward(self, *, on: bool) -> None:
        """Watch calls of ``backward()`` or stop to."""
        if on:
            self._backward.install()
        else:
            self._backward.remove()
            self._scaled.clear()

    def watch_functions(self, *, on: bool) -> None:
        """Watch calls of loss functions or stop to."""
        for patch in self._functions:
            (patch.install if on else patch.remove)()

    def scaled(self, loss: Any, result: Any) -> None:
        """Remember which loss GradScaler scaled, so that the true one is kept."""
        if self._tally() is not None and isinstance(loss, torch.Tensor):
            self._scaled.append((result, loss))

    def _around_backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._session.guarded(self._started_backward, args[0] if args else kwargs.get("tensors"))
        return original(*args, **kwargs)

    def _started_backward(self, roots: Any) -> None:
        tally = self._tally()
        if tally is not None:
            for root in tensors_in(roots, 1):
                tally.root(next((loss for scaled, loss in self._scaled if scaled is root), root))
        self._scaled.clear()

    def _around_function(
        self, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self._inside:
            return original(*args, **kwargs)
        self._inside = True
        try:
            result = original(*args, **kwargs)
        finally:
            self._inside = False
        target = args[1] if len(args) > 1 else kwargs.get("target")
        self._session.guarded(
            self._computed, name, args[:1] or (kwargs.get("input"),), target, result
        )
        return result

    def _computed(self, name: str, inputs: Sequence[Any], target: Any, result: Any) -> None:
        tally = self._tally()
        if tally is not None:
            tally.add(name, result, batch_size(inputs))
            if isinstance(result, torch.Tensor):
                tally.results.append((name, weakref.ref(result)))
            self._label(tally, target)


class LossReader:
    """Where the losses of a run come from, and what they are called.

    Args:
        session: Guards what is ours.
        tally: Returns where losses go at the moment, None for nowhere.
        label: Told each target.
        loss_fn: As given to ``watch``.
    """

    def __init__(
        self,
        session: Session,
        tally: Callable[[], Tally | None],
        label: Callable[[Tally, Any], None],
        loss_fn: Any,
    ) -> None:
        self._session, self._tally, self._label, self._loss_fn = session, tally, label, loss_fn
        self.finder = LossFinder(session, tally, label)
        self.searching = True  # until the loss module was seen at work
        self.searching_functions = not isinstance(loss_fn, nn.Module)
        self._trusted = function_name(loss_fn)
        self._trained = False

    def attach(self) -> list[RemovableHandle]:
        """Hook the loss module, if there is one."""
        if not isinstance(self._loss_fn, nn.Module):
            return []
        return [self._loss_fn.register_forward_hook(Callback(self._session, self._called))]

    def _called(self, _module: nn.Module, args: Sequence[Any], output: Any) -> None:
        if self.searching:
            self.searching = self.searching_functions = False
            self.finder.stop()
        self.add(args, output)

    def add(self, args: Sequence[Any], output: Any) -> None:
        """Add the result of a call of the loss function."""
        tally = self._tally()
        if tally is not None:
            tally.losses = {LOSS: tally.losses.get(LOSS, [])}
            tally.roots.clear()
            tally.add(LOSS, output, batch_size(args[:1]))
            if len(args) > 1:
                self._label(tally, args[1])

    def resolve(self, tally: Tally, mode: Mode) -> dict[str, float]:
        """Read a tally: name → loss.

        A loss function found at work is called ``loss`` if ``backward()`` was called on just its
        value; else it keeps its own name in both modes, so that only like is compared with like.
        """
        found = {name: mean for name in tally.losses if (mean := tally.mean(name)) is not None}
        if LOSS in found:
            return {LOSS: found[LOSS]}
        objective = tally.objective()
        if mode is Mode.TRAIN and objective is not None:
            self._trained = True
            alone = len(set(tally.sources)) == 1
            self._trusted = tally.sources[0] if alone else None
        trusted = self._trusted
        if trusted is None and not self._trained and len(found) == 1:
            trusted = next(iter(found))
        if trusted in found:
            return {LOSS: found[trusted]}
        return found if objective is None else {LOSS: objective, **found}


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


def loss_in(output: Any) -> torch.Tensor | None:
    """Return the loss that a model computed itself: ``output.loss`` or ``output["loss"]``."""
    found = output.get(LOSS) if isinstance(output, dict) else getattr(output, LOSS, None)
    return found if isinstance(found, torch.Tensor) and found.numel() == 1 else None


def function_name(loss_fn: Any) -> str | None:
    """Return the name of a function of ``torch.nn.functional``; None for anything else."""
    if isinstance(loss_fn, nn.Module):
        return None
    name = getattr(loss_fn, "__name__", "")
    return name if getattr(functional, name, None) is loss_fn and name in _FUNCTIONS else None
