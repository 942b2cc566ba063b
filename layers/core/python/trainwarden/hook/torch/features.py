"""A batch's inputs, outputs and labels: their rows, and samples of them for the facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.batches import add_batch
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.repeats import RepeatedSamples
from trainwarden.hook.torch.views import view
from trainwarden.model import Collection, FloatArray
from trainwarden.stats.features import Features, Held, duplicated, output_facts

MAX_TENSORS = 4  # inputs or outputs of one model
MAX_ELEMENTS = 2**15  # looked at of each
MAX_TOKENS = 1000  # different ones that are counted one by one
MAX_BATCHES = 8  # of an evaluation pass whose inputs are looked at
_SAMPLES = 16  # of images and sequences at least; then pixels and positions are left out
MAX_COMPARED = 256  # samples of a batch, with each other
_COMPARED = 64  # outputs of a batch
_IMAGE = 4  # dimensions: samples, channels, height, width
_OPAQUE = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


class Batches:
    """Rows and facts of the inputs and outputs of each watched model.

    Args:
        session: Names what is wanted.
        modules: Say which dimension holds the features.
    """

    def __init__(self, session: Session, modules: Modules) -> None:
        self._session, self._modules = session, modules
        self._features: dict[str, Features] = {}
        self._held: dict[str, Held] = {}
        self._repeats = RepeatedSamples()
        self._convolves: dict[str, bool] = {}
        self._wanted = Collection.BATCH in session.options.collections

    def inputs(self, draft: Draft, prefix: str, tensors: Sequence[torch.Tensor]) -> None:
        """Look at what a model is given in training."""
        name = f"{prefix}.input".strip(".")
        add_batch(self._session, draft, Collection.INPUTS, name, tensors)
        self._look(draft, prefix, tensors, self._data)
        if self._wanted and 0 < len(tensors) <= MAX_TENSORS and not any(map(_hidden, tensors)):
            with suppress(*_OPAQUE):
                self._repeats.given(draft, tensors)

    def validation(
        self, draft: Draft, prefix: str, tensors: Sequence[torch.Tensor], *, first: bool
    ) -> None:
        """Look at what a model is given in evaluation.

        Args:
            draft: Of the pass.
            prefix: Of the model.
            tensors: What it is given.
            first: A pass begins.
        """
        if first:
            self._held.clear()
        self._look(draft, prefix, tensors, self._hold)

    def labels(self, draft: Draft, target: torch.Tensor, *, of_inputs: bool) -> None:
        """Look at what a loss function is given to compare with.

        Args:
            draft: Of a training step.
            target: What the loss function is given.
            of_inputs: The model was given one batch so far, which these are the labels of.
        """
        add_batch(self._session, draft, Collection.LABELS, "label", [target])
        if self._wanted and of_inputs:
            with suppress(*_OPAQUE):
                self._repeats.labelled(draft, target)

    def _look(
        self,
        draft: Draft,
        prefix: str,
        tensors: Sequence[torch.Tensor],
        data: Callable[[Draft, str, str, torch.Tensor], object],
    ) -> None:
        for position, tensor in enumerate(tensors[:MAX_TENSORS]):
            name = f"{prefix}.input/{position}".strip(".")
            if _hidden(tensor) or not self._session.options.wants(Collection.INPUTS, name):
                continue
            try:
                if _is_data(tensor):
                    if self._wanted:
                        data(draft, name, prefix, tensor.detach())
                elif not (tensor.is_floating_point() or tensor.is_complex()):
                    self._tokens(draft, name, tensor.detach())
            except _OPAQUE:
                continue  # a tensor that hides its elements

    def outputs(self, draft: Draft, prefix: str, tensors: Sequence[torch.Tensor]) -> None:
        """Look at what a model returns."""
        name = f"{prefix}.output".strip(".")
        add_batch(self._session, draft, Collection.OUTPUTS, name, tensors)
        for position, tensor in enumerate(tensors[:MAX_TENSORS]):
            name = f"{prefix}.output/{position}".strip(".")
            if (
                self._wanted
                and not _hidden(tensor)
                and tensor.is_floating_point()
                and tensor.dim() > 1
                and tensor.shape[0] > 1
                and self._session.options.wants(Collection.OUTPUTS, name)
            ):
                try:
                    found = output_facts(_compared(tensor.detach()))
                except _OPAQUE:
                    continue
                self._tell(draft, name, found)

    def _tell(self, draft: Draft, name: str, facts: dict[str, float]) -> None:
        if facts:
            draft.facts(Collection.BATCH, facts, f"{name}.")

    def _data(self, draft: Draft, name: str, prefix: str, tensor: torch.Tensor) -> None:
        whole = self._sample(prefix, tensor)
        axis = self._axis(prefix, tensor.dim())
        found = self._features.get(name)
        if found is None or found.total != tensor.shape[axis]:
            found = self._features[name] = Features(tensor.shape[axis])
        kept = _kept(whole, axis, found)
        rows = _rows(kept, axis)
        facts = found.add(rows, samples=whole.shape[0], size=tensor.shape[0])
        alike = _duplicated(kept)
        if alike and kept is not whole:
            alike = _duplicated(whole)  # samples may differ in what was left out
        if alike is not None:
            facts["duplicated_samples"] = alike
        self._tell(draft, name, facts)

    def _hold(self, draft: Draft, name: str, prefix: str, tensor: torch.Tensor) -> None:
        training, axis = self._features.get(name), self._axis(prefix, tensor.dim())
        if training is None or training.total != tensor.shape[axis]:
            return
        held = self._held.get(name) or self._held.setdefault(name, Held(training))
        kept = _kept(self._sample(prefix, tensor), axis, training)
        self._tell(draft, name, held.add(_rows(kept, axis), samples=kept.shape[0]))

    def _sample(self, prefix: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return whole samples, or of images and sequences more of them with less of each."""
        axis = self._axis(prefix, tensor.dim())
        kept = tensor[:: _stride(tensor.shape[0], tensor.numel(), _SAMPLES)]
        if kept.numel() > MAX_ELEMENTS and tensor.dim() > 2:  # noqa: PLR2004 - features are all kept
            inner = [d for d in range(1, tensor.dim()) if d != axis]
            step = int(np.ceil((kept.numel() / MAX_ELEMENTS) ** (1 / len(inner))))
            kept = kept[
                tuple(slice(None, None, step if d in inner else 1) for d in range(kept.dim()))
            ]
        return kept

    def _axis(self, prefix: str, dimensions: int) -> int:
        """Features come second, but last in sequences unless those are convolved."""
        if dimensions != 3:  # noqa: PLR2004 - sequences
            return 1
        if prefix not in self._convolves:
            modules = self._modules.below(prefix)
            self._convolves[prefix] = any(isinstance(module, nn.Conv1d) for _, module in modules)
        return 1 if self._convolves[prefix] else 2

    def _tokens(self, draft: Draft, name: str, tensor: torch.Tensor) -> None:
        kept = tensor[:: _stride(tensor.shape[0], tensor.numel())] if tensor.dim() else tensor
        flat = kept.reshape(-1)[:MAX_ELEMENTS].to("cpu", torch.int64).numpy()
        distinct, numbers = np.unique(flat, return_counts=True)
        if self._wanted:
            draft.scalar(Collection.BATCH, f"{name}.tokens", float(flat.size))
            draft.scalar(Collection.BATCH, f"{name}.distinct_tokens", float(distinct.size))
        if distinct.size > MAX_TOKENS:
            often = np.sort(np.argpartition(-numbers, MAX_TOKENS)[:MAX_TOKENS])
            distinct, numbers = distinct[often], numbers[often]
        counts = draft.labels.setdefault(name, {})
        for token, number in zip(distinct.tolist(), numbers.tolist(), strict=True):
            if token in counts or len(counts) < MAX_TOKENS:
                counts[token] = counts.get(token, 0) + number


def _kept(whole: torch.Tensor, axis: int, features: Features) -> torch.Tensor:
    """Return the features that are looked at."""
    if features.kept.size == features.total:
        return whole
    return whole.index_select(axis, torch.from_numpy(features.kept).to(whole.device))


def _rows(kept: torch.Tensor, axis: int) -> FloatArray:
    """Return (rows, features) float64; the numbers of each feature lie together."""
    wide = np.ascontiguousarray(kept.movedim(axis, 0).to("cpu", torch.float64).numpy())
    rows: FloatArray = wide.reshape(len(wide), -1).T
    return rows


def _duplicated(samples: torch.Tensor) -> float | None:
    compared = view(samples[:MAX_COMPARED])
    return duplicated(compared.array) if compared is not None and len(compared.array) > 1 else None


def _hidden(tensor: Any) -> bool:
    return tensor.is_meta or tensor.layout is not torch.strided or not tensor.numel()


def _is_data(tensor: torch.Tensor) -> bool:
    """Say whether these are measurements: floats, or images as bytes."""
    if tensor.dtype is torch.uint8:
        return tensor.dim() >= _IMAGE
    return tensor.is_floating_point() and tensor.dim() > 1


def _stride(samples: int, elements: int, least: int = 1) -> int:
    kept = max(least, samples * MAX_ELEMENTS // max(elements, 1))
    return max(1, -(-samples // kept))


def _compared(tensor: torch.Tensor) -> FloatArray:
    """Return some samples of a batch as (N, …) float64."""
    kept = tensor[:: max(1, -(-tensor.shape[0] // _COMPARED))]
    flat = kept.flatten(1) if kept.is_contiguous() else kept.reshape(len(kept), -1)
    width = max(1, MAX_ELEMENTS // len(kept))
    found: FloatArray = flat[:, :: -(-flat.shape[1] // width)].to("cpu", torch.float64).numpy()
    return found
