"""Facts about samples that come again: whether their labels stay with them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.loops import record
from trainwarden.hook import Hook
from trainwarden.model import Collection, Mode
from trainwarden.stats.repeats import MAX_LABELS, MAX_REMEMBERED, Repeats

Batch = tuple[torch.Tensor, torch.Tensor]


def trained(model: nn.Module, batches: list[Batch], **options: Any) -> dict[str, float]:
    """Facts about labels after one step on each batch."""
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def loop(_: Hook) -> None:
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()

    seen = record(model, loop, optimizer, loss_fn=loss, **options).of(Mode.TRAIN)[-1]
    known = seen.scalars.get(Collection.BATCH, {}).items()
    return {k.removeprefix("label/0."): v for k, v in known if k.startswith("label/0.")}


def rows(seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (40, 6)), generator=torch.Generator().manual_seed(seed))


def labels(seed: int = 0, classes: int = 3) -> torch.Tensor:
    return torch.randint(0, classes, (40,), generator=torch.Generator().manual_seed(seed))


def test_labels_that_stay_with_their_samples_are_known_by_them() -> None:
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    found = trained(nn.Linear(6, 3), [(rows(), labels()), (rows()[order], labels()[order])])
    assert found["repeated"] == 40.0
    assert found["relabelled"] == 0.0


def test_labels_that_are_mixed_anew_are_counted_against_the_last_ones() -> None:
    steps = [labels(seed) for seed in range(4)]
    found = trained(nn.Linear(6, 3), [(rows(), label) for label in steps])
    other = sum(int((a != b).sum()) for a, b in pairwise(steps))
    assert found["repeated"] == 120.0
    assert found["relabelled"] == pytest.approx(other / 120)
    every = Counter(torch.cat(steps).tolist())
    alike = sum(n * (n - 1) for n in every.values()) / (160 * 159)
    assert found["by_chance"] == pytest.approx(1 - alike)


def test_samples_that_never_come_again_are_none() -> None:
    found = trained(nn.Linear(6, 3), [(rows(i), labels(i)) for i in range(3)])
    assert found == {"repeated": 0.0}


def test_of_large_images_some_are_known_again() -> None:
    images = rows(1, 40, 3, 64, 64)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    found = trained(model, [(images, labels()), (images, 2 - labels())])
    assert found["repeated"] == 16.0
    assert found["relabelled"] == float((labels()[:16] != 1).float().mean())


class Rating(nn.Module):
    """What a user says of an item."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(40, 4), nn.Embedding(40, 4)
        self.out = nn.Linear(4, 3)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> Any:
        return self.out(self.users(users) * self.items(items))


def test_symbols_alone_make_no_sample() -> None:
    model = Rating()
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def loop(_: Hook) -> None:
        for seed in range(2):
            loss(model(torch.arange(40), torch.arange(40)), labels(seed)).backward()
            optimizer.step()

    seen = record(model, loop, optimizer, loss_fn=loss).of(Mode.TRAIN)[-1]
    assert "label/0.repeated" not in seen.scalars[Collection.BATCH]


def test_labels_of_another_batch_than_the_first_are_not_looked_at() -> None:
    model = nn.Linear(6, 3)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.CrossEntropyLoss()

    def loop(_: Hook) -> None:
        for seed in range(2):
            soft = model(rows()).softmax(dim=1)  # without labels
            (loss(model(rows(7)), labels(seed)) + soft.square().mean()).backward()
            optimizer.step()

    seen = record(model, loop, optimizer, loss_fn=loss).of(Mode.TRAIN)[-1]
    assert "label/0.repeated" not in seen.scalars[Collection.BATCH]


def test_several_labels_a_sample_are_not_looked_at() -> None:
    model = nn.Linear(6, 3)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.BCEWithLogitsLoss()

    def loop(_: Hook) -> None:
        for seed in range(2):
            wanted = (rows(seed, 40, 3) > 0).float()
            loss(model(rows()), wanted).backward()
            optimizer.step()

    seen = record(model, loop, optimizer, loss_fn=loss).of(Mode.TRAIN)[-1]
    assert "label/0.repeated" not in seen.scalars[Collection.BATCH]


def test_binary_labels_are_followed_too() -> None:
    model = nn.Linear(6, 1)
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=1e-3), nn.BCEWithLogitsLoss()

    def loop(_: Hook) -> None:
        for seed in range(2):
            loss(model(rows()), labels(seed, 2).float().unsqueeze(1)).backward()
            optimizer.step()

    seen = record(model, loop, optimizer, loss_fn=loss).of(Mode.TRAIN)[-1]
    changed = float((labels(0, 2) != labels(1, 2)).float().mean())
    assert seen.scalars[Collection.BATCH]["label/0.relabelled"] == pytest.approx(changed)


def test_the_numbers_of_rows_are_no_labels() -> None:
    repeats = Repeats()
    assert repeats.add(range(8), range(8)) == {}
    assert repeats.add(range(8), [*range(4, 8), *range(4)]) == {}
    assert repeats.add(range(8), range(0, 16, 2)) == {}
    assert repeats.add(range(8), [5, 3, 900, 17, 4, 8, 2, 1]) == {"repeated": 0.0}


def test_a_sample_that_stands_twice_in_a_batch_says_nothing() -> None:
    repeats = Repeats()
    repeats.add([1, 1, 2], [0, 1, 1])
    assert repeats.add([1, 2, 3], [0, 0, 0]) == {
        "repeated": 1.0, "relabelled": 1.0, "by_chance": pytest.approx(1 - (12 + 2) / 30)
    }  # fmt: skip


def test_memory_is_bounded() -> None:
    repeats = Repeats()
    count = 2 * MAX_REMEMBERED
    values = np.random.default_rng(0).integers(0, 5 * MAX_LABELS, count).tolist()
    repeats.add(range(count), values)
    assert repeats.add(range(count), values)["repeated"] == MAX_REMEMBERED
    assert len(repeats._labels) == MAX_LABELS
