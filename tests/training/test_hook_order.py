"""What the hook must see although it comes first: loss functions around the model, the order."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import digits, mlp, record, train, watched
from tests.unit.hook.recording import Recording, read
from trainwarden.hook import Hook
from trainwarden.model import Mode
from trainwarden.store.memory import MemoryObjects

X, Y = digits(64)


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss: Any = functional.cross_entropy(model(X), Y)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def depths(found: Recording) -> dict[str, int]:
    tensors = found.observations[-1].layout.tensors
    return {t.name: t.depth for t in tensors if str(t.collection) in {"weights", "biases"}}


# ---- loss functions in one expression with the model ------------------------------------------


@pytest.mark.parametrize("interval", [1, 3])
def test_a_loss_function_around_the_model_is_seen_at_each_saved_step(interval: int) -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    with watched(store, model, optimizer, save_interval=interval, dense_steps=0):
        losses = [step(model, optimizer) for _ in range(7)]
    found = read(store)
    assert found.scalars("loss") == pytest.approx(losses[::interval])
    for one in found.observations:
        assert one.scalars["objective"]["cross_entropy.classes"] == 10.0
        assert sum(one.labels["label/0"].values()) == len(Y)


def test_a_loss_function_around_the_model_is_seen_in_a_first_evaluation() -> None:
    model, seen = mlp(), list[float]()
    optimizer = sgd(model)

    def loop(_hook: Hook) -> None:
        for _ in range(2):
            model.eval()
            with torch.no_grad():
                seen.append(float(functional.cross_entropy(model(X), Y)))
            model.train()
            step(model, optimizer)

    found = record(model, loop, optimizer, save_interval=100, dense_steps=0)
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(seen)


def test_a_function_that_others_put_in_place_of_ours_is_watched_from_the_next_saved_step() -> None:
    model, store, before = mlp(), MemoryObjects(), functional.cross_entropy
    optimizer = sgd(model)

    def faster(*args: Any, **kwargs: Any) -> torch.Tensor:
        return before(*args, **kwargs)

    try:
        with watched(store, model, optimizer, save_interval=1):
            step(model, optimizer)
            functional.cross_entropy = faster
            for _ in range(2):
                step(model, optimizer)
        assert functional.cross_entropy is faster
    finally:
        functional.cross_entropy = before
    counted = [one.labels for one in read(store).observations]
    assert ["label/0" in labels for labels in counted] == [True, False, True]


def test_a_watched_loss_function_is_known_by_its_name_in_a_second_run() -> None:
    given, stores = functional.cross_entropy, (MemoryObjects(), MemoryObjects())
    models = mlp(0), mlp(1)
    hooks = []
    for i, (model, store) in enumerate(zip(models, stores, strict=True)):
        hooks.append(watched(store, model, sgd(model), given, job=f"job-{i}"))
    losses = []
    for model in models:
        model.eval()
        with torch.no_grad():
            losses.append(float(functional.cross_entropy(model(X), Y)))
            functional.mse_loss(model(X), functional.one_hot(Y, 10).float())
    for hook in hooks:
        hook.close()
    for i, store in enumerate(stores):
        assert read(store, f"job-{i}").scalars("loss", mode=Mode.EVAL) == pytest.approx([losses[i]])


def test_loss_functions_are_pickled_by_name_while_they_are_watched() -> None:
    model = mlp()
    with watched(MemoryObjects(), model, sgd(model)):
        assert b"trainwarden" not in pickle.dumps(functional.cross_entropy)
        assert pickle.loads(pickle.dumps(functional.mse_loss)) is functional.mse_loss  # noqa: S301 - ours


# ---- the order of modules --------------------------------------------------------------------


@pytest.mark.parametrize("evaluation", [True, False])
def test_weights_have_their_depth_if_the_loop_trains_in_eval_mode(*, evaluation: bool) -> None:
    model = mlp().eval()
    optimizer = sgd(model)

    def loop(_hook: Hook) -> None:
        for _ in range(3):
            step(model, optimizer)

    found = record(model, loop, optimizer, evaluation=evaluation)
    assert depths(found) == {"0.weight": 0, "0.bias": 0, "2.weight": 2, "2.bias": 2}


def test_weights_have_the_depth_of_training_if_a_pass_in_eval_mode_came_first() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(32, 10), nn.Linear(64, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = self.first(x) if self.training else x[:, :32]
            return self.last(half)  # type: ignore[no-any-return]

    model = Halves()
    optimizer = sgd(model)

    def loop(_hook: Hook) -> None:
        model.eval()
        model(X)  # a check, with gradients
        train(model, optimizer, nn.CrossEntropyLoss(), (X, Y), steps=2)

    found = record(model, loop, optimizer)
    assert depths(found) == {"first.weight": 0, "first.bias": 0, "last.weight": 1, "last.bias": 1}
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
