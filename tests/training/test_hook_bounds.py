"""Names of any kind, several models in one process, and loops that never end."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import trainwarden
from tests.training.loops import digits, mlp, record, train, watched
from tests.unit.hook.recording import LAZY, QUICK, Crashing, read
from trainwarden.hook import Hook
from trainwarden.model import Mode
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.names import MAX_NAME_CHARS

STEPS = 3000
WAIT_S = 30.0


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def tiny(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(8, 4, generator=made), torch.randint(0, 2, (8,), generator=made)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> float:
    x, y = batch(seed)
    optimizer.zero_grad()
    loss: Any = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


# ---- names --------------------------------------------------------------------------------


def odd_names(hook: Hook, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    losses = []
    for seed in range(3):
        losses.append(step(model, optimizer, seed))
        hook.record("\ud800", torch.ones(3))
        hook.record("\ud801", 1.0)
        hook.record("x", torch.ones(3), collection="c" * 500)
        hook.record("y\n", 2.0, collection="d" * 500)
    return losses


@pytest.mark.parametrize("name", ["n" * 2000, "\ud800", "a\tb\x00"])
def test_no_name_keeps_a_run_from_being_recorded(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, store = tiny(), MemoryObjects()
    model.add_module(name, nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    optimizer = sgd(model)
    with watched(store, model, optimizer) as hook:
        odd_names(hook, model, optimizer)
    found = read(store)
    assert found.steps == [0, 1, 2]
    assert found.dropped == {}
    names = found.manifest.layout.names
    assert all(len(name) <= MAX_NAME_CHARS and name.isprintable() for name in names)
    weights = set(found.names("weights"))
    assert len(weights) == 3
    assert {f"gradient/{name}" for name in weights} <= set(names)
    for obs in found.observations:
        assert set(obs.channels) <= set(names)
        assert len(obs.scalars["metrics"]) == 1
    assert [r.message.count("written in another way") for r in caplog.records] == [1]


# ---- whose loss ---------------------------------------------------------------------------


def test_two_watched_models_keep_their_losses_apart() -> None:
    models, stores = [tiny(0), tiny(1)], [MemoryObjects(), MemoryObjects()]
    optimizers = [sgd(model) for model in models]
    hooks = [
        watched(store, model, optimizer, job=f"job-{i}", save_interval=1 + i)
        for i, (store, model, optimizer) in enumerate(zip(stores, models, optimizers, strict=True))
    ]
    first, second = list[float](), list[float]()
    for seed in range(4):
        first.append(step(models[0], optimizers[0], seed))
        x, _ = batch(seed)
        optimizers[1].zero_grad()
        other: Any = 100 * functional.mse_loss(models[1](x), torch.zeros(8, 2)) + 7
        other.backward()
        optimizers[1].step()
        second.append(float(other.detach()))
    for hook in hooks:
        hook.close()
    assert read(stores[0], "job-0").scalars("loss") == first
    assert read(stores[1], "job-1").scalars("loss") == second


def test_a_loss_module_that_two_models_share_is_told_apart_in_evaluation_too() -> None:
    loss_fn, (x, y) = nn.CrossEntropyLoss(), batch(0)
    models, stores = [tiny(0), tiny(1)], [MemoryObjects(), MemoryObjects()]
    hooks = [
        watched(store, model, sgd(model), loss_fn, job=f"job-{i}")
        for i, (store, model) in enumerate(zip(stores, models, strict=True))
    ]
    with torch.no_grad():
        outputs = [model.eval()(x) for model in models]
        losses = [float(loss_fn(output, y)) for output in outputs]
    for hook in hooks:
        hook.close()
    for i, (store, loss) in enumerate(zip(stores, losses, strict=True)):
        assert read(store, f"job-{i}").scalars("loss", mode=Mode.EVAL) == [loss]


def test_the_loss_of_a_model_that_is_not_watched_is_nobodys() -> None:
    model, other = tiny(0), tiny(1)
    optimizer, other_optimizer = sgd(model), sgd(other)

    def loop(hook: Hook) -> None:
        del hook
        for seed in range(3):
            x, y = batch(seed)
            output = model(x)
            step(other, other_optimizer, seed + 10)
            optimizer.zero_grad()
            loss: Any = functional.cross_entropy(output, y)
            loss.backward()
            losses.append(float(loss.detach()))
            optimizer.step()

    losses = list[float]()
    found = record(model, loop, optimizer)
    assert found.scalars("loss") == losses
    assert found.observations[0].labels["label/0"] == {
        label: batch(0)[1].tolist().count(label) for label in set(batch(0)[1].tolist())
    }


def test_models_trained_in_two_threads_keep_their_losses_apart() -> None:
    stores, losses = [MemoryObjects(), MemoryObjects()], [list[float](), list[float]()]
    turn = threading.Barrier(2, timeout=WAIT_S)

    def work(i: int) -> None:
        model = tiny(i)
        optimizer = sgd(model)
        with watched(stores[i], model, optimizer, job=f"job-{i}"):
            for seed in range(10):
                turn.wait()
                losses[i].append(step(model, optimizer, 100 * i + seed))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    torch.manual_seed(0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for i, store in enumerate(stores):
        found = read(store, f"job-{i}")
        assert found.scalars("loss") == losses[i]
        assert len(losses[i]) == 10


def test_a_loss_function_called_around_the_model_is_seen_in_an_evaluation_of_one_batch() -> None:
    model, (x, y) = tiny(), batch(0)

    def loop(hook: Hook) -> None:
        del hook
        model.eval()
        with torch.no_grad():
            losses.append(float(functional.cross_entropy(model(x), y)))

    losses = list[float]()
    found = record(model, loop, sgd(model))
    assert found.scalars("loss", mode=Mode.EVAL) == losses


# ---- loops without an end -----------------------------------------------------------------


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def stays_flat(turn: Any) -> None:
    """Run ``STEPS`` turns; the later ones must leave nothing behind."""
    for i in range(STEPS // 3):
        turn(i)
    before, tensors = objects(), count_tensors()
    for i in range(STEPS - STEPS // 3):
        turn(i)
    assert count_tensors() <= tensors + 8
    assert objects() <= before + 200


def count_tensors() -> int:
    return sum(issubclass(type(found), torch.Tensor) for found in gc.get_objects())


def test_training_without_an_optimizer_keeps_nothing_of_each_batch() -> None:
    model = tiny()

    def turn(seed: int) -> None:
        x, y = batch(seed)
        loss: Any = functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.001 * parameter.grad)
                parameter.grad = None

    with watched(MemoryObjects(), model, _limits=LAZY) as hook:
        stays_flat(turn)
        assert hook.active


def test_evaluation_without_an_end_keeps_a_sum_and_not_the_losses() -> None:
    model, store = tiny().eval(), MemoryObjects()
    losses = list[float]()

    @torch.no_grad()
    def turn(seed: int) -> None:
        x, y = batch(seed % 7)
        loss = functional.cross_entropy(model(x), y)
        losses.append(float(loss))

    with watched(store, model, sgd(model), _limits=LAZY):
        stays_flat(turn)
    [mean] = read(store).scalars("loss", mode=Mode.EVAL)
    assert mean == pytest.approx(sum(losses) / len(losses), rel=1e-12)


def test_a_hook_whose_training_is_done_keeps_nothing_of_the_next_one() -> None:
    model, other = tiny(0), tiny(1)
    optimizer, other_optimizer = sgd(model), sgd(other)
    with watched(MemoryObjects(), model, optimizer, _limits=LAZY) as hook:
        step(model, optimizer)
        stays_flat(lambda seed: step(other, other_optimizer, seed))
        assert hook.step == 1


def test_hooks_whose_models_are_gone_end_with_their_threads() -> None:
    stores = [MemoryObjects() for _ in range(20)]
    threads = set(threading.enumerate())

    def sweep(i: int) -> weakref.ref[nn.Module]:
        model = tiny(i)
        optimizer = sgd(model)
        trainwarden.watch(
            model, optimizer if i % 2 else None, job=f"job-{i}", _store=stores[i], _limits=LAZY
        )
        for seed in range(3):
            step(model, optimizer, seed)
        return weakref.ref(model)

    models = [sweep(i) for i in range(20)]
    gc.collect()
    assert [model() for model in models] == [None] * 20
    for thread in set(threading.enumerate()) - threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    for i, store in enumerate(stores):
        found = read(store, f"job-{i}")
        assert found.steps == [0, 1, 2]
        assert found.end is not None
        assert found.end.reason == "finished"
    backward: Any = torch.autograd.backward
    assert backward.__module__ == "torch.autograd"
    assert not hasattr(backward, "_trainwarden_patch")


# ---- the upload ---------------------------------------------------------------------------


def test_an_upload_that_crashes_for_good_ends_the_watch_and_not_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loss_fn, data = nn.CrossEntropyLoss(), digits()
    plain, model = mlp(), mlp()
    expected = train(plain, sgd(plain), loss_fn, data, steps=6)
    optimizer = sgd(model)
    hook = watched(
        Crashing(10**6), model, optimizer, loss_fn, strict=False, _limits=QUICK, save_interval=1
    )
    losses = train(model, optimizer, loss_fn, data, steps=3)
    assert hook._session is not None
    hook._session.uploader._thread.join(WAIT_S)
    assert not hook.active
    x, y = data
    for i in range(3, 6):
        at = torch.arange(i * 64, (i + 1) * 64) % len(x)
        optimizer.zero_grad()
        loss = loss_fn(model(x[at]), y[at])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses == expected
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    hook.close()
    assert len(caplog.records) == 2
    assert "training goes on unwatched" in caplog.records[-1].message
