"""Takes fingerprints of the samples of a batch and its labels; ``stats.repeats`` compares them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainwarden.hook.draft import Draft
from trainwarden.hook.torch.tally import class_of_each
from trainwarden.hook.torch.views import view
from trainwarden.model import Collection
from trainwarden.stats.repeats import Repeats

MAX_SAMPLES, FEW = 256, 16  # of a batch; at least, of large samples
MAX_ELEMENTS = 2**15  # of those samples
_WIDEST = 2048  # elements of a sample, evenly spread
_TOKENS = 4  # integers that make a sample; fewer are symbols, whose meaning is what came before


class RepeatedSamples:
    """Follows the first inputs and the first labels of each saved training step."""

    def __init__(self) -> None:
        self._repeats = Repeats()
        self._given: tuple[int, int, list[int]] | None = None  # step, batch size, fingerprints

    def given(self, draft: Draft, tensors: Sequence[torch.Tensor]) -> None:
        """A model is given a batch."""
        if self._given is None or self._given[0] != draft.step:
            self._given = None
            size = next((one.shape[0] for one in tensors if one.dim()), 0)
            batched = [one.detach() for one in tensors if one.dim() and one.shape[0] == size]
            if size and _says_something(batched):
                self._given = draft.step, size, _fingerprints(batched)

    def labelled(self, draft: Draft, target: torch.Tensor) -> None:
        """A loss function is given what that batch is compared with."""
        labels = class_of_each(target)
        if self._given is None or labels is None or self._given[:2] != (draft.step, len(labels)):
            return
        samples = self._given[2]
        facts = self._repeats.add(samples, labels[: len(samples)].tolist())
        if facts:
            draft.facts(Collection.BATCH, facts, "label/0.")


def _says_something(batched: Sequence[torch.Tensor]) -> bool:
    """Say whether a sample is more than a symbol or two: what these mean is what came before."""
    if any(one.is_floating_point() for one in batched):
        return True
    return sum(one.numel() // one.shape[0] for one in batched) >= _TOKENS


def _fingerprints(batched: Sequence[torch.Tensor]) -> list[int]:
    """Return one of each of the first samples, of all tensors together; none if one is hidden."""
    parts = [_bodies(one) for one in batched]
    return [hash(sample) for sample in zip(*parts, strict=False)]


def _bodies(tensor: torch.Tensor) -> list[bytes]:
    """Return the bytes of samples; of large ones evenly spread elements, the same of each."""
    width = max(1, tensor.numel() // tensor.shape[0])
    step = -(-width // _WIDEST)
    kept = tensor[: min(MAX_SAMPLES, max(FEW, MAX_ELEMENTS * step // width))]
    seen = view(kept.reshape(len(kept), -1)[:, ::step])
    return [] if seen is None else [row.tobytes() for row in seen.array]
