"""Loops that never step: passes whose gradients are thrown away count as steps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.bodies import LOSS, X, Y, backward, facts, sgd, zero_first
from tests.training.loops import mlp, record, watched
from tests.unit.hook.recording import Recording, read
from trainwarden.model import Collection
from trainwarden.store.memory import MemoryObjects


def stepless(count: int, **options: Any) -> Recording:
    """A loop that forgets ``optimizer.step()``."""
    model = mlp()
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            backward(model)

    found: Recording = record(model, loop, optimizer, LOSS, **options)
    return found


def test_passes_whose_gradients_are_thrown_away_count_as_steps_with_all_that_belongs_to_one() -> (
    None
):
    found = stepless(20)
    assert found.steps == list(range(len(found.steps)))
    assert len(found.steps) >= 8
    assert set(facts(found, "stepped")) == {0.0}
    assert set(facts(found, "backward_passes")) == {1.0}
    discarded = [fact or 0.0 for fact in facts(found, "gradients_discarded")]
    assert discarded == sorted(discarded)
    assert discarded[0] >= 10
    losses = found.scalars("loss")
    assert len(losses) == len(found.steps)
    assert max(losses) - min(losses) < 1e-6  # the same batch, the same weights
    assert all(norm > 0 for norm in found.values("gradient/0.weight", "l2"))
    assert found.values("0.weight", "update_l2")[1:] == [0.0] * (len(losses) - 1)
    assert set(facts(found, "lr_0", Collection.OPTIMIZER)) == {0.1}


def test_such_passes_are_saved_as_steps_are() -> None:
    found = stepless(60, save_interval=10, dense_steps=3)
    assert found.steps == [0, 1, 2, 10, 20, 30, 40]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("passes", [1, 2])
def test_it_does_not_matter_how_they_are_thrown_away(
    *, set_to_none: bool, late: bool, given: bool, passes: int
) -> None:
    model = mlp()
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for _ in range(20):
            if not late:
                optimizer.zero_grad(set_to_none=set_to_none)
            loss = LOSS(model(X), Y)
            if late:
                optimizer.zero_grad(set_to_none=set_to_none)
            loss.backward()
            for _ in range(passes - 1):
                backward(model)

    found = record(model, loop, optimizer if given else None, LOSS)
    assert len(found.steps) >= 7
    assert set(facts(found, "stepped")) == {0.0}
    assert set(facts(found, "backward_passes")) == {float(passes)}
    assert all(abs(loss - found.scalars("loss")[0]) < 1e-6 for loss in found.scalars("loss"))


def test_gradients_accumulated_over_64_passes_are_no_steps() -> None:
    model = mlp()
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(3):
            for _ in range(64):
                backward(model)
            if step:
                optimizer.step()
            optimizer.zero_grad()

    found = record(model, loop, optimizer, LOSS)
    assert found.steps == [0, 1]
    assert facts(found, "backward_passes") == [128.0, 64.0]
    assert facts(found, "gradients_discarded") == [64.0, 0.0]


@pytest.mark.parametrize("before", [5, 14])
def test_steps_that_come_later_are_counted_once(before: int) -> None:
    model = mlp()
    optimizer = sgd(model)
    store = MemoryObjects()
    with watched(store, model, optimizer, LOSS) as hook:
        for _ in range(before):
            optimizer.zero_grad()
            backward(model)
        counted = hook.step
        for _ in range(6):
            zero_first(model, optimizer, 0)
        assert hook.step == counted + 6
    found = read(store)
    assert found.steps == list(range(counted + 6))
    assert facts(found, "stepped") == [0.0] * counted + [1.0] * 6
    assert set(facts(found, "backward_passes")[1:]) == {1.0}
    assert facts(found, "gradients_carried")[-5:] == [0.0] * 5
    assert len(found.scalars("loss")) == counted + 6


def test_passes_that_add_up_after_all_do_not_count() -> None:
    model = mlp()
    store = MemoryObjects()
    with watched(store, model, None, LOSS) as hook:
        for _ in range(14):
            model.zero_grad()
            backward(model)
        counted = hook.step
        assert counted > 0
        for _ in range(30):
            backward(model)
        assert hook.step <= counted + 1


def test_in_eval_mode_passes_count_too() -> None:
    model = mlp()

    def loop(_: object) -> None:
        model.eval()
        for _ in range(20):
            model.zero_grad()
            backward(model)

    found = record(model, loop, sgd(model), LOSS)
    assert set(facts(found, "stepped")) == {0.0}
    assert set(facts(found, "train_mode", Collection.OPTIMIZER)) == {0.0}
    assert len(found.scalars("loss")) == len(found.steps)
