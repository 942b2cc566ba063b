"""Which optimizer counts the steps, when scripts replace it, alternate, or wrap one in another."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.loops import digits, mlp, record, train, watched
from tests.unit.hook.recording import read
from trainwarden.hook import Hook
from trainwarden.store.memory import MemoryObjects

LOSS = nn.CrossEntropyLoss()


def sgd(module: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def adam(module: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=0.01)


@pytest.mark.parametrize("given", [True, False], ids=["given", "found"])
@pytest.mark.parametrize("held", [True, False], ids=["held", "dropped"])
def test_an_optimizer_that_is_replaced_is_followed(
    *, given: bool, held: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def run(model: nn.Module, first: torch.optim.Optimizer) -> list[float]:
        kept = [first] if held else []
        losses = train(model, first, LOSS, digits(), steps=3)
        del first
        kept.append(adam(model))
        return losses + train(model, kept[-1], LOSS, digits(), steps=4)

    model, store = mlp(), MemoryObjects()
    optimizers = [sgd(model)]
    with (
        caplog.at_level(logging.WARNING, "trainwarden"),
        watched(store, model, optimizers[0] if given else None, LOSS) as hook,
    ):
        losses = run(model, optimizers.pop())
        assert hook.step == 7
    found = read(store)
    assert found.steps == [*range(7)]
    assert found.scalars("lr_0", "optimizer") == pytest.approx([0.1] * 3 + [0.01] * 4)
    assert caplog.text.count("was replaced") == 1
    bare = mlp()
    assert losses == run(bare, sgd(bare))


def test_an_optimizer_for_each_step_is_not_kept_alive() -> None:
    model, store, seen = mlp(), MemoryObjects(), []
    with watched(store, model, None, LOSS) as hook:
        for _ in range(6):
            optimizer = adam(model)
            seen.append(weakref.ref(optimizer))
            train(model, optimizer, LOSS, digits(), steps=1)
        assert hook.step == 6
        gc.collect()
        assert sum(ref() is not None for ref in seen) == 1
    assert read(store).steps == [*range(6)]


def test_after_unfreezing_the_new_optimizer_of_more_layers_counts() -> None:
    model = mlp()
    model[0].requires_grad_(requires_grad=False)

    def loop(hook: Hook) -> None:
        head = torch.optim.SGD(model[2].parameters(), lr=0.1)
        train(model, head, LOSS, digits(), steps=2)
        model[0].requires_grad_(requires_grad=True)
        train(model, sgd(model), LOSS, digits(), steps=2)
        assert hook.step == 4

    found = record(model, loop, None, LOSS)
    moved = found.values("gradient/0.weight", "l2")
    assert [value > 0 for value in moved] == [False, False, True, True]


def test_the_first_of_several_goes_on_counting_however_often_the_others_step() -> None:
    model, critic = mlp(), mlp(1)
    ours, other = sgd(model), sgd(critic)

    def loop(hook: Hook) -> None:
        for _ in range(3):
            train(critic, other, LOSS, digits(), steps=5)
            train(model, ours, LOSS, digits(), steps=1)
        assert hook.step == 3

    assert record({"g": model, "d": critic}, loop, [ours, other], LOSS).steps == [0, 1, 2]


def test_both_of_several_can_be_replaced_and_keep_their_places() -> None:
    model, critic = mlp(), mlp(1)
    pairs: list[list[torch.optim.Optimizer]] = [[sgd(model), sgd(critic)]]

    def loop(hook: Hook) -> None:
        for make in (None, adam):
            if make is not None:
                pairs[0] = [make(model), make(critic)]
            for _ in range(2):
                train(critic, pairs[0][1], LOSS, digits(), steps=3)
                train(model, pairs[0][0], LOSS, digits(), steps=1)
        assert hook.step == 4

    found = record({"g": model, "d": critic}, loop, list(pairs[0]), LOSS)
    assert found.steps == [0, 1, 2, 3]
    assert found.scalars("1.lr_0", "optimizer") == pytest.approx([0.1, 0.1, 0.01, 0.01])


def test_two_that_alternate_over_the_same_parameters_make_a_step_together() -> None:
    model = mlp()
    first, second = sgd(model), adam(model)

    def loop(hook: Hook) -> None:
        for _ in range(6):
            train(model, first, LOSS, digits(), steps=1)
            train(model, second, LOSS, digits(), steps=1)
        assert hook.step == 7  # the second one took the count over at its first step

    record(model, loop, None, LOSS)


def test_one_that_steps_on_after_it_was_replaced_takes_the_count_back() -> None:
    model = mlp()
    first, second = sgd(model), adam(model)

    def loop(hook: Hook) -> None:
        for optimizer in (first, second, first):
            train(model, optimizer, LOSS, digits(), steps=10)
        assert hook.step == 29  # the first step after its return went with the next

    record(model, loop, first, LOSS)


def test_an_optimizer_of_other_layers_counts_once_the_first_has_rested_long() -> None:
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.SGD(model[2].parameters(), lr=0.1)

    def loop(hook: Hook) -> None:
        train(model, first, LOSS, digits(), steps=2)
        train(model, second, LOSS, digits(), steps=99)
        assert hook.step == 2
        train(model, second, LOSS, digits(), steps=5)
        assert hook.step == 7

    record(model, loop, first, LOSS)


class Wrapping(torch.optim.Optimizer):
    """Steps through another optimizer, as sharpness-aware minimisation does."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        super().__init__(base.param_groups, {})
        self.base = base

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return self.base.step(closure)


@pytest.mark.parametrize("given", [True, False], ids=["given", "found"])
def test_an_optimizer_inside_another_one_makes_no_step_of_its_own(*, given: bool) -> None:
    model = mlp()
    outer = Wrapping(sgd(model))

    def loop(hook: Hook) -> None:
        train(model, outer, LOSS, digits(), steps=4)
        assert hook.step == 4

    assert record(model, loop, outer if given else None, LOSS).steps == [0, 1, 2, 3]


class Failing(torch.optim.SGD):
    def step(self, *_: Any) -> Any:
        raise MemoryError("no room for the state")


def test_one_whose_step_failed_is_followed_by_its_replacement() -> None:
    model = mlp()
    first = Failing(model.parameters(), lr=0.1)

    def loop(hook: Hook) -> None:
        with pytest.raises(MemoryError):
            train(model, first, LOSS, digits(), steps=1)
        train(model, sgd(model), LOSS, digits(), steps=12)
        assert hook.step == 4  # after eight that might have been steps inside the first one's

    record(model, loop, first, LOSS)


def test_optimizers_of_other_models_make_no_steps() -> None:
    model, other = mlp(), mlp(1)
    ours, theirs = sgd(model), sgd(other)

    def loop(hook: Hook) -> None:
        for _ in range(3):
            train(other, theirs, LOSS, digits(), steps=2)
            train(model, ours, LOSS, digits(), steps=1)
        assert hook.step == 3

    found = record(model, loop, ours, LOSS)
    assert found.steps == [0, 1, 2]
