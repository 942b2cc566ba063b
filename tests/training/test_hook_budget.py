"""Real loops within their budget, and with schedules of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.training.loops import digits, evaluate, mlp, record
from tests.unit.hook.recording import Recording
from trainwarden.hook import Hook, SaveConfig, SaveConfigMode
from trainwarden.hook.budget import FREE, MAX_GAP
from trainwarden.model import Collection, Mode

X, Y = digits(16)


def run(steps: int, **options: object) -> Recording:
    """Train a small network, evaluating every tenth step."""
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(_: Hook) -> None:
        for step in range(steps):
            model.train()
            optimizer.zero_grad()
            loss_fn(model(X), Y).backward()
            optimizer.step()
            if step % 10 == 9:
                evaluate(model, loss_fn, (X, Y))

    return record(model, loop, optimizer, loss_fn, **options)


def steps_of(recording: Recording, mode: Mode = Mode.TRAIN) -> list[int]:
    return [o.step for o in recording.of(mode)]


@pytest.fixture(scope="module")
def poor() -> Recording:
    """A run that may not spend anything."""
    return run(FREE + MAX_GAP + 5, save_interval=1, max_overhead=1e-9)


def test_beyond_its_budget_a_run_is_saved_once_in_a_while_only(poor: Recording) -> None:
    assert steps_of(poor) == [*range(FREE + 1), FREE + MAX_GAP]


def test_what_was_left_out_stands_in_the_data(poor: Recording) -> None:
    *before, last = [o.scalars.get(Collection.CAPTURE, {}) for o in poor.of(Mode.TRAIN)]
    assert not any(before)
    assert last["left_out"] == MAX_GAP - 1
    assert 0 < last["share"] < 1


def test_losses_of_steps_left_out_are_told_all_the_same(poor: Recording) -> None:
    *_, last = poor.of(Mode.TRAIN)
    assert last.scalars[Collection.WINDOW]["steps"] == MAX_GAP
    assert last.scalars[Collection.WINDOW]["loss_mean"] > 0


def test_evaluation_is_never_left_out(poor: Recording) -> None:
    assert len(steps_of(poor, Mode.EVAL)) == (FREE + MAX_GAP + 5) // 10


def test_without_a_limit_every_step_is_saved() -> None:
    found = run(FREE + 50, save_interval=1, max_overhead=float("inf"))
    assert steps_of(found) == list(range(FREE + 50))


def test_key_steps_are_saved_whatever_they_cost() -> None:
    options = {"save_interval": 1, "max_overhead": 1e-9, "save_steps": [FREE + 20, FREE + 30]}
    assert steps_of(run(FREE + 40, **options))[-3:] == [FREE, FREE + 20, FREE + 30]


def test_modes_are_saved_each_by_its_own_configuration() -> None:
    config = SaveConfig({"TRAIN": SaveConfigMode(25), "EVAL": SaveConfigMode(3)})
    found = run(100, save_config=config)
    assert steps_of(found) == [0, 25, 50, 75]
    passes = [(o.mode_step, o.step) for o in found.of(Mode.EVAL)]
    assert [number for number, _ in passes] == [0, 3, 6, 9]
    assert [step for _, step in passes] == [10, 40, 70, 100]


def test_a_run_of_known_length_is_dense_at_both_ends() -> None:
    found = run(100, max_steps=100, dense_steps=0)
    assert steps_of(found) == [*range(10), *range(10, 90, 10), *range(90, 100)]
