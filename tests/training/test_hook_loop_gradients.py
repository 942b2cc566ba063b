"""Gradients that are cleared, carried over or thrown away, in loops as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.bodies import (
    LOSS,
    Gan,
    X,
    Y,
    accumulate,
    backward,
    facts,
    looped,
    never_zero,
    sgd,
    with_closures,
    zero_first,
    zero_in_place,
)
from tests.training.loops import digits, mlp, record, watched
from tests.unit.hook.recording import read
from trainwarden.model import Collection
from trainwarden.store.memory import MemoryObjects


def zero_last(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad()


def zero_by_module(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    loss = LOSS(model(X), Y)
    model.zero_grad()
    loss.backward()
    optimizer.step()


def zero_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    backward(model)
    optimizer.step()


@pytest.mark.parametrize(
    "body", [zero_first, zero_last, zero_in_place, zero_by_module, zero_by_hand, accumulate]
)
@pytest.mark.parametrize("interval", [1, 3])
def test_gradients_that_are_cleared_in_whatever_way_are_not_carried(
    body: Callable[..., object], interval: int
) -> None:
    found = looped(body, save_interval=interval, dense_steps=2)
    assert set(facts(found, "gradients_carried")) == {0.0}
    assert set(facts(found, "gradients_discarded")) == {0.0}
    assert set(facts(found, "stepped")) == {1.0}
    assert set(facts(found, "backward_passes")) == {4.0 if body is accumulate else 1.0}


@pytest.mark.parametrize("interval", [1, 3])
def test_gradients_that_are_never_cleared_are_carried(interval: int) -> None:
    found = looped(never_zero, save_interval=interval, dense_steps=2)
    assert facts(found, "gradients_carried") == [0.0] + [1.0] * (len(found.steps) - 1)


def test_accumulated_gradients_that_are_never_cleared_are_carried() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        backward(model)
        backward(model)
        optimizer.step()

    found = looped(body)
    assert facts(found, "gradients_carried") == [0.0] + [1.0] * 7
    assert set(facts(found, "backward_passes")) == {2.0}


def test_of_passes_that_are_cleared_before_the_step_all_but_the_last_are_discarded() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        for _ in range(4):
            optimizer.zero_grad()
            backward(model)
        optimizer.step()

    found = looped(body)
    assert set(facts(found, "gradients_discarded")) == {3.0}
    assert set(facts(found, "gradients_carried")) == {0.0}


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_cleared_between_backward_and_step_are_discarded(*, set_to_none: bool) -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        backward(model)
        optimizer.zero_grad(set_to_none=set_to_none)
        optimizer.step()

    found = looped(body)
    assert set(facts(found, "gradients_discarded")) == {1.0}


@pytest.mark.parametrize("given", [True, False], ids=["given", "found"])
@pytest.mark.parametrize("interval", [1, 2, 5])
@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_the_losses_of_a_gan_reach_each_others_parameters_and_nothing_is_carried(
    *, given: bool, interval: int, detach: bool, early: bool
) -> None:
    gan = Gan()

    def loop(_: object) -> None:
        for _ in range(20):
            gan.step(detach=detach, early=early)

    found = record(
        {"g": gan.generator, "c": gan.critic},
        loop,
        [gan.of_critic, gan.of_generator] if given else None,
        save_interval=interval,
        dense_steps=3,
    )
    known = 0 if given else 1  # one found at its first step may have had no telling probe
    assert set(facts(found, "gradients_carried")[known:]) == {0.0}
    assert set(facts(found, "gradients_discarded")[known:]) == {0.0}


def test_a_gan_that_never_clears_gradients_carries_them() -> None:
    gan = Gan()

    def loop(_: object) -> None:
        for _ in range(8):
            gan.step(clear=False)

    roots: dict[str, nn.Module] = {"g": gan.generator, "c": gan.critic}
    found = record(roots, loop, [gan.of_critic, gan.of_generator])
    assert facts(found, "gradients_carried")[2:] == [1.0] * 6


def test_the_closures_of_lbfgs_are_passes_and_carry_nothing() -> None:
    model = mlp()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), max_iter=3)

    found = record(model, with_closures(model, optimizer), optimizer, LOSS)
    assert set(facts(found, "gradients_carried")) == {0.0}
    assert all(passes is not None and passes >= 3 for passes in facts(found, "backward_passes"))


def test_gradients_that_are_only_asked_for_are_no_passes() -> None:
    """As in MAML's inner loop, or a gradient penalty."""

    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        optimizer.zero_grad()
        torch.autograd.grad(LOSS(model(X), Y), list(model.parameters()))
        backward(model)
        optimizer.step()

    found = looped(body)
    assert set(facts(found, "backward_passes")) == {1.0}
    assert set(facts(found, "gradients_discarded")) == {0.0}


def test_steps_that_grad_scaler_skips_carry_nothing() -> None:
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**8)

    def loop(_: object) -> None:
        for step in range(6):
            optimizer.zero_grad()
            loss = LOSS(model(X), Y) * (float("inf") if step in {2, 3} else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    found = record(model, loop, optimizer, LOSS)
    assert facts(found, "found_inf", Collection.OPTIMIZER) == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert set(facts(found, "gradients_carried")) == {0.0}
    assert set(facts(found, "stepped")) == {1.0}


def test_an_optimizer_for_each_parameter_that_steps_in_the_backward_pass_carries_nothing() -> None:
    model = mlp()
    optimizers = {id(p): torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def at_once(parameter: torch.Tensor) -> None:
        optimizers[id(parameter)].step()
        optimizers[id(parameter)].zero_grad()

    parameter: Any
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(at_once)

    def loop(_: object) -> None:
        for _ in range(8):
            backward(model)

    found = record(model, loop, list(optimizers.values()), LOSS)
    assert len(found.steps) == 8
    assert not {1.0} & set(facts(found, "gradients_carried"))
    assert not {1.0, 2.0} & set(facts(found, "gradients_discarded"))


def test_sparse_gradients_are_seen_to_be_cleared_and_not_to_be() -> None:
    for clear in (True, False):
        torch.manual_seed(0)
        model = nn.EmbeddingBag(50, 10, sparse=True)
        optimizer = sgd(model)

        def loop(
            _: object,
            model: nn.Module = model,
            optimizer: torch.optim.Optimizer = optimizer,
            clear: bool = clear,  # noqa: FBT001 - bound to the loop's variable
        ) -> None:
            for step in range(5):
                if clear:
                    optimizer.zero_grad(set_to_none=False)
                tokens = torch.arange(32).view(16, 2) + step % 2
                LOSS(model(tokens), Y[:16]).backward()
                optimizer.step()

        found = record(model, loop, optimizer, LOSS)
        assert facts(found, "gradients_carried") == [0.0] + [float(not clear)] * 4


def test_a_lazy_model_is_followed_from_its_first_step() -> None:
    model = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(10))
    store = MemoryObjects()
    with watched(store, model, None, LOSS):
        model(X)
        optimizer = sgd(model)
        for _ in range(4):
            never_zero(model, optimizer, 0)
    assert facts(read(store), "gradients_carried") == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("keyword", [True, False])
def test_gradients_made_in_a_closure_are_those_of_the_very_step(*, keyword: bool) -> None:
    model: Any = mlp()
    optimizer, loss_fn = sgd(model), nn.CrossEntropyLoss()
    x, y = digits(32)
    made: list[float] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = loss_fn(model(x), y)
        torch.autograd.backward(loss)
        made.append(model[0].weight.grad.norm().item())
        return loss

    def loop(_: object) -> None:
        for _ in range(4):
            optimizer.step(closure=closure) if keyword else optimizer.step(closure)

    found = record(model, loop, optimizer, loss_fn)
    assert found.values("gradient/0.weight", "l2") == pytest.approx(made, rel=1e-5)
    assert len(set(made)) == 4
    assert all(obs.captured("activations").size for obs in found.observations)
    assert all(obs.scalars["losses"]["loss"] > 0 for obs in found.observations)
