"""What a step costs, in calls of functions of ours: those do not depend on the machine."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import digits, mlp, record, watched
from trainwarden.hook import Hook
from trainwarden.hook.torch.tally import classes_in
from trainwarden.model import Mode
from trainwarden.stats.features import Features
from trainwarden.store.memory import MemoryObjects

X, Y = digits(64)


def calls_of_ours(act: Any) -> Counter[str]:
    """Count the calls of functions of the package while ``act`` runs, in this thread."""
    found = Counter[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/trainwarden/" in frame.f_code.co_filename:
            found[frame.f_code.co_qualname if sys.version_info >= (3, 11) else ""] += 1

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize(("loss_fn", "most"), [(nn.CrossEntropyLoss(), 77), (None, 70)])
def test_a_step_that_is_not_saved_makes_few_calls(loss_fn: nn.Module | None, most: int) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = (loss_fn or functional.cross_entropy)(model(X), Y)
        loss.backward()
        optimizer.step()

    with watched(
        MemoryObjects(), model, optimizer, loss_fn, save_interval=1000, dense_steps=0
    ) as hook:
        for _ in range(20):
            step()
        made = [calls_of_ours(step) for _ in range(20)]
        assert hook.active
        assert hook.step == 40
    assert max(found.total() for found in made) <= most


def test_tensors_of_a_step_are_measured_in_one_go() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model(X), Y).backward()
        optimizer.step()

    with watched(MemoryObjects(), model, optimizer, loss_fn, save_interval=1):
        step()
        assert calls_of_ours(step)["table"] == 1


def wide_facts(batch: torch.Tensor) -> dict[str, float]:
    model = nn.Linear(batch.shape[1], 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(_: Hook) -> None:
        model(batch).square().mean().backward()
        optimizer.step()

    return dict(record(model, loop, optimizer).of(Mode.TRAIN)[0].scalars["batch"])


def test_samples_that_differ_only_in_features_left_out_are_no_copies() -> None:
    batch = torch.zeros(4, 100_000)
    batch[torch.arange(4), torch.tensor([1, 2, 3, 4])] = 1.0  # none of them is looked at
    found = wide_facts(batch)
    assert found["input/0.features"] == 100_000.0
    assert found["input/0.max"] == 0.0
    assert found["input/0.duplicated_samples"] == 0.0
    batch[3] = batch[2]
    assert wide_facts(batch)["input/0.duplicated_samples"] == 0.25


def test_of_wide_inputs_only_the_features_looked_at_are_converted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes, add = list[tuple[int, ...]](), Features.add

    def note(self: Features, rows: Any, **options: int) -> dict[str, float]:
        shapes.append(rows.shape)
        return add(self, rows, **options)

    monkeypatch.setattr(Features, "add", note)
    wide_facts(torch.randn(64, 100_000))
    assert shapes == [(16, 4096)]


@pytest.mark.parametrize(
    "target",
    [
        torch.tensor([3, -100, 3, 7, 0]),
        torch.tensor([[5], [5], [2]], dtype=torch.int32),
        torch.tensor([0, 10**12, 0]),
        torch.tensor([True, False, True]),
        torch.tensor([200, 0, 200], dtype=torch.uint8),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([[0.0, 1.0], [1.0, 1.0]]),
        torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
        torch.tensor([0.0, 0.5]),
        torch.tensor([0.0, float("nan")]),
        torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float16),
    ],
    ids=str,
)
def test_classes_are_counted_as_by_sorting(target: torch.Tensor) -> None:
    array = target.numpy()
    if target.is_floating_point():
        if not np.isin(array, (0, 1)).all():
            array = array[:0]
        elif array.ndim == 2:
            array = array.argmax(axis=1) if (array.sum(axis=1) == 1).all() else array[:0]
    labels, counts = np.unique(array, return_counts=True)
    assert classes_in(target) == ([int(label) for label in labels], counts.tolist())
