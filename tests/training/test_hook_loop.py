"""Facts about the loop, seen in loops as users write them, sound and faulty."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.loops import digits, mlp, record, train, watched
from tests.unit.hook.recording import Recording, read
from trainwarden.model import Collection, Mode
from trainwarden.store.memory import MemoryObjects

LOSS = nn.CrossEntropyLoss()
X, Y = digits(64)


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def facts(recording: Recording, name: str, collection: str = Collection.LOOP) -> list[float | None]:
    """A fact at each saved training step; None where it is not known."""
    return [obs.scalars.get(collection, {}).get(name) for obs in recording.of(Mode.TRAIN)]


def looped(body: Callable[[nn.Module, torch.optim.Optimizer, int], object], **options: Any) -> Any:
    """Watch an MLP while ``body(model, optimizer, step)`` runs 8 times."""
    model = mlp()
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(8):
            body(model, optimizer, step)

    return record(model, loop, optimizer, LOSS, **options)


def backward(model: nn.Module) -> None:
    LOSS(model(X), Y).backward()


# ---- gradients that are carried over ----


def zero_first(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def zero_last(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    backward(model)
    optimizer.step()
    optimizer.zero_grad()


def zero_in_place(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad(set_to_none=False)
    backward(model)
    optimizer.step()


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


def accumulate(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    for _ in range(4):
        backward(model)
    optimizer.step()
    optimizer.zero_grad()


def never_zero(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
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


class Gan:
    """A generator and a critic whose losses reach each other's parameters."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.generator, self.critic = nn.Linear(4, 8), nn.Linear(8, 1)
        self.of_generator, self.of_critic = sgd(self.generator), sgd(self.critic)

    def step(self, *, detach: bool = True, early: bool = False, clear: bool = True) -> None:
        """One step of both; ``early``: all gradients are cleared before the critic's turn."""
        fake = self.generator(torch.randn(16, 4))
        if early and clear:
            self.of_generator.zero_grad()
        if clear:
            self.of_critic.zero_grad()
        seen = fake.detach() if detach else fake
        real = self.critic(torch.randn(16, 8)).mean()
        (self.critic(seen).mean() - real).backward(retain_graph=not detach)
        self.of_critic.step()
        if clear and not early:
            self.of_generator.zero_grad()
        fake = self.generator(torch.randn(16, 4))
        (-self.critic(fake).mean()).backward()
        self.of_generator.step()


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

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = LOSS(model(X), Y)
        torch.autograd.backward(loss)
        return loss

    def loop(_: object) -> None:
        for _ in range(3):
            optimizer.step(closure)

    found = record(model, loop, optimizer, LOSS)
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


# ---- passes without a step ----


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


# ---- nothing is left, nothing is disturbed ----


def test_probes_and_patches_are_gone_after_close() -> None:
    model, before = mlp(), torch.autograd.backward
    optimizer = sgd(model)
    with watched(MemoryObjects(), model, optimizer, LOSS):
        backward(model)
        assert any(p._backward_hooks for p in model.parameters())
        twin = copy.deepcopy(model)
        assert not any(p._backward_hooks for p in twin.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert b"trainwarden" not in pickle.dumps(list(model.parameters()))
    assert not any(p._backward_hooks for p in model.parameters())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert torch.autograd.backward is before


def test_between_saved_steps_there_are_no_probes() -> None:
    model = mlp()
    optimizer = sgd(model)
    with watched(MemoryObjects(), model, optimizer, LOSS, save_interval=10, dense_steps=2):
        train(model, optimizer, LOSS, (X, Y), steps=4)
        assert not any(p._backward_hooks for p in model.parameters())


def test_a_compiled_model_is_not_compiled_again() -> None:
    compiled = 0

    def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    torch._dynamo.reset()
    counts, store = [], MemoryObjects()
    for hooked in (False, True):
        model, compiled = mlp(), 0
        optimizer = sgd(model)
        fast: Any = torch.compile(model, backend=compiler)
        target = store if hooked else MemoryObjects()
        hook = watched(target, fast, optimizer, LOSS, save_interval=5, dense_steps=3)
        if not hooked:
            hook.close()
        for _ in range(12):
            zero_first(fast, optimizer, 0)
        hook.close()
        counts.append(compiled)
        torch._dynamo.reset()
    assert counts == [1, 1]
    assert set(facts(read(store), "gradients_carried")) == {0.0}
