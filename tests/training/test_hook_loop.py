"""Facts about the loop, seen in loops as users write them, sound and faulty."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from tests.training.loops import digits, mlp, record, train, watched
from tests.unit.hook.recording import Recording, read
from trainwarden.hook.torch.modes import probability
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


def with_closures(model: nn.Module, optimizer: Any) -> Callable[[object], None]:
    """Three steps of an optimizer that makes its passes itself."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = LOSS(model(X), Y)
        torch.autograd.backward(loss)
        return loss

    def loop(_: object) -> None:
        for _ in range(3):
            optimizer.step(closure)

    return loop


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


# ---- what the optimizer holds ----

MEMBERS = (
    "parameters",
    "parameters_without_optimizer",
    "optimizer_tensors",
    "optimizer_tensors_foreign",
    "parameters_without_gradient",
)


def members(recording: Recording) -> list[tuple[float | None, ...]]:
    return list(zip(*(facts(recording, name) for name in MEMBERS), strict=True))


def test_in_a_sound_loop_the_optimizer_holds_what_the_model_has() -> None:
    assert set(members(looped(zero_first))) == {(4.0, 0.0, 4.0, 0.0, 0.0)}


def test_an_optimizer_of_another_model_holds_foreign_tensors() -> None:
    model = mlp()
    optimizer = sgd(copy.deepcopy(model))

    def loop(_: object) -> None:
        for step in range(8):
            zero_first(model, optimizer, step)

    found = record(model, loop, optimizer, LOSS)
    assert members(found)[-1] == (4.0, 4.0, 4.0, 4.0, 0.0)


def test_layers_left_out_of_the_optimizer_are_counted_once_its_companions_could_be_known() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(next(iter(model.children())).parameters(), lr=0.1)

    def loop(_: object) -> None:
        for step in range(5):
            zero_first(model, optimizer, step)

    found = members(record(model, loop, optimizer, LOSS))
    assert [one[0] for one in found] == [None, None, 4.0, 4.0, 4.0]
    assert found[-1] == (4.0, 2.0, 2.0, 0.0, 0.0)


def test_frozen_tensors_are_no_members_and_thawed_ones_are() -> None:
    model = mlp()
    first = next(iter(model.children()))
    first.requires_grad_(requires_grad=False)
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(6):
            if step == 3:
                first.requires_grad_(requires_grad=True)
            zero_first(model, optimizer, step)

    found = members(record(model, loop, optimizer, LOSS))
    assert found == [(2.0, 0.0, 4.0, 0.0, 0.0)] * 3 + [(4.0, 0.0, 4.0, 0.0, 0.0)] * 3


class Tied(nn.Module):
    """Output weights that are the embedding, and a layer that is not used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(10, 64)
        self.out = nn.Linear(64, 10, bias=False)
        self.out.weight = self.embed.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x)
        return out


def test_shared_tensors_count_once_and_unused_ones_have_no_gradient() -> None:
    model = Tied()
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(4):
            zero_first(model, optimizer, step)

    assert set(members(record(model, loop, optimizer, LOSS))) == {(3.0, 0.0, 3.0, 0.0, 2.0)}


def test_the_optimizers_of_a_gan_are_held_against_both_models() -> None:
    gan = Gan()

    def loop(_: object) -> None:
        for _ in range(6):
            gan.step()

    roots: dict[str, nn.Module] = {"g": gan.generator, "c": gan.critic}
    for given in ([gan.of_critic, gan.of_generator], None):
        found = members(record(roots, loop, given))
        assert found[-1] == (4.0, 0.0, 4.0, 0.0, 0.0)
        assert all(one[1] in {None, 0.0} for one in found)


def test_tensors_of_the_loss_in_the_optimizer_are_foreign_and_few() -> None:
    model, scale = mlp(), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)

    def loop(_: object) -> None:
        for _ in range(4):
            optimizer.zero_grad()
            (scale * LOSS(model(X), Y)).backward()
            optimizer.step()

    assert members(record(model, loop, optimizer, None))[-1] == (4.0, 0.0, 5.0, 1.0, 0.0)


def test_parameters_that_join_the_optimizer_later_are_seen() -> None:
    model = mlp()
    head = list(model.children())[2]
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def loop(_: object) -> None:
        for step in range(6):
            if step == 4:
                optimizer.add_param_group({"params": next(iter(model.children())).parameters()})
            zero_first(model, optimizer, step)

    assert facts(record(model, loop, optimizer, LOSS), "parameters_without_optimizer")[2:] == [
        2.0,
        2.0,
        0.0,
        0.0,
    ]


def test_gradients_that_lbfgs_makes_itself_are_not_missed() -> None:
    model = mlp()
    optimizer: Any = torch.optim.LBFGS(model.parameters(), max_iter=2)

    found = record(model, with_closures(model, optimizer), optimizer, LOSS)
    assert facts(found, "parameters_without_gradient") == [0.0] * 3


# ---- modes ----


def normed(affine: bool = True) -> nn.Sequential:  # noqa: FBT001, FBT002 - read where it is called
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 32),
        nn.BatchNorm1d(32, affine=affine, momentum=0.2),
        nn.ReLU(),
        nn.Dropout(0.4),
        nn.BatchNorm1d(32, track_running_stats=False),
        nn.Dropout(0.0),
        nn.Linear(32, 10),
    )


def modes_of(recording: Recording) -> dict[str, float]:
    names = (
        "batchnorms",
        "batchnorms_in_eval",
        "batchnorms_in_eval_trainable",
        "dropouts",
        "dropouts_in_eval",
        "dropout_max",
        "batchnorm_momentum_max",
    )
    found = {name: set(facts(recording, name)) for name in names}
    assert all(len(values) == 1 for values in found.values()), found
    return {name: value for name, (value,) in found.items() if value is not None}


def run_modes(model: nn.Module, prepare: Callable[[nn.Module], object]) -> dict[str, float]:
    optimizer = sgd(model)

    def loop(_: object) -> None:
        for step in range(4):
            prepare(model)
            zero_first(model, optimizer, step)

    return modes_of(record(model, loop, optimizer, LOSS))


def test_modules_in_training_mode_are_counted_if_the_mode_matters_to_them() -> None:
    assert run_modes(normed(), lambda model: model.train()) == {
        "batchnorms": 1.0,  # one without running statistics is the same in both modes
        "batchnorms_in_eval": 0.0,
        "batchnorms_in_eval_trainable": 0.0,
        "dropouts": 1.0,  # one that drops nothing is none
        "dropouts_in_eval": 0.0,
        "dropout_max": 0.4,
        "batchnorm_momentum_max": 0.2,
    }


def test_a_model_that_trains_in_eval_mode_is_seen_to() -> None:
    found = run_modes(normed(), lambda model: model.eval())
    assert found["batchnorms_in_eval"] == found["batchnorms_in_eval_trainable"] == 1.0
    assert found["dropouts_in_eval"] == 1.0


def test_batch_norms_that_are_frozen_on_purpose_are_not_trainable() -> None:
    def freeze(model: nn.Module) -> None:
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval().requires_grad_(requires_grad=False)

    found = run_modes(normed(), freeze)
    assert found["batchnorms_in_eval"] == 1.0
    assert found["batchnorms_in_eval_trainable"] == 0.0
    assert found["dropouts_in_eval"] == 0.0


def test_a_model_without_such_modules_has_none() -> None:
    found = run_modes(mlp(), lambda model: model.train())
    assert set(found.values()) == {0.0}
    assert "dropout_max" not in found


def test_dropout_inside_of_attention_and_recurrence_counts() -> None:
    assert [
        probability(module)
        for module in (
            nn.MultiheadAttention(8, 2, dropout=0.3),
            nn.LSTM(8, 8, num_layers=2, dropout=0.6),
            nn.Dropout2d(0.25),
        )
    ] == [0.3, 0.6, 0.25]
    assert probability(nn.LSTM(8, 8)) < 0


@pytest.mark.parametrize("module", [True, False], ids=["module", "function"])
@pytest.mark.parametrize("given", [True, False])
def test_a_validation_in_training_mode_is_counted_up_to_the_next_saved_step(
    *, module: bool, given: bool
) -> None:
    model = normed()
    optimizer = sgd(model)
    loss_fn = nn.CrossEntropyLoss()

    def loop(_: object) -> None:
        for step in range(20):
            zero_first(model, optimizer, step)
            if step in {12, 15}:
                with torch.no_grad():
                    for _ in range(3):
                        out = model(X)
                        loss_fn(out, Y) if module else functional.cross_entropy(out, Y)

    found = record(model, loop, optimizer, loss_fn if given else None, save_interval=5)
    counts = dict(zip(found.steps, facts(found, "validation_in_training_mode"), strict=True))
    assert counts[15] == 3.0  # before step 15
    assert sum(count or 0 for count in counts.values()) == 3.0
    assert not found.of(Mode.EVAL)


@pytest.mark.parametrize("what", ["eval mode", "no loss", "loss with gradients", "no target"])
def test_what_is_no_validation_in_training_mode(what: str) -> None:
    model = normed()
    optimizer = sgd(model)

    def check() -> None:
        model.train(what != "eval mode")
        with torch.no_grad():
            out = model(X)
            if what == "eval mode":
                LOSS(out, Y)
            if what == "no target":
                functional.softmax(out, dim=1).mean()
        if what == "loss with gradients":  # a teacher's targets, as in DQN or distillation
            out.requires_grad_(requires_grad=True)
            functional.mse_loss(out, torch.zeros_like(out))
        model.train()

    def loop(_: object) -> None:
        for step in range(8):
            zero_first(model, optimizer, step)
            check()

    found = record(model, loop, optimizer, LOSS)
    assert set(facts(found, "validation_in_training_mode")) == {0.0}


# ---- settings and clipping ----


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
            {"lr_0": 0.1, "momentum_0": 0.9, "weight_decay_0": 1e-4, "adaptive_0": 0.0},
        ),
        (
            lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.8, 0.99), eps=1e-6),
            {
                "lr_0": 1e-3,
                "momentum_0": 0.8,
                "weight_decay_0": 1e-2,
                "eps_0": 1e-6,
                "adaptive_0": 1.0,
            },
        ),
        (
            lambda p: torch.optim.RMSprop(p, lr=torch.tensor(0.25)),
            {
                "lr_0": 0.25,
                "momentum_0": 0.0,
                "weight_decay_0": 0.0,
                "eps_0": 1e-8,
                "adaptive_0": 1.0,
            },
        ),
    ],
    ids=["sgd", "adamw", "rmsprop"],
)
def test_the_settings_of_an_optimizer_are_told(
    make: Callable[[Any], torch.optim.Optimizer], expected: dict[str, float]
) -> None:
    model = mlp()
    optimizer = make(model.parameters())
    found = record(
        model, lambda _: train(model, optimizer, LOSS, digits(), steps=2), optimizer, LOSS
    )
    settings = dict(found.observations[1].scalars["optimizer"])
    assert settings.pop("train_mode") == 1.0
    assert settings == pytest.approx(expected)


def test_each_group_of_each_optimizer_has_its_settings() -> None:
    model = mlp()
    first, second = next(iter(model.children())), list(model.children())[2]
    groups: list[dict[str, Any]] = [
        {"params": [first.weight]},
        {"params": [first.bias], "weight_decay": 0.5},
    ]
    one, two = torch.optim.SGD(groups, lr=0.1), torch.optim.Adam(second.parameters(), lr=0.2)

    def loop(_: object) -> None:
        for _ in range(3):
            model.zero_grad()
            backward(model)
            two.step()
            one.step()

    found = record(model, loop, [one, two], LOSS).observations[-1].scalars["optimizer"]
    assert [found[f"weight_decay_{i}"] for i in (0, 1)] == [0.0, 0.5]
    assert (found["1.lr_0"], found["1.adaptive_0"], found["adaptive_0"]) == (0.2, 1.0, 0.0)


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "looked up"])
def test_clipping_is_seen_however_its_function_is_found(*, before: bool) -> None:
    norms = []

    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        optimizer.zero_grad()
        backward(model)
        clip = clip_grad_norm_ if before else torch.nn.utils.clip_grad_norm_
        norms.append(float(clip((p for p in model.parameters()), 0.05)))
        optimizer.step()

    found = looped(body, save_interval=2, dense_steps=2)
    told = facts(found, "grad_norm", Collection.OPTIMIZER)
    assert told == pytest.approx([norms[step] for step in found.steps])
    assert set(facts(found, "clip_limit", Collection.OPTIMIZER)) == {0.05}
    assert set(facts(found, "clipped", Collection.WINDOW)) == {1.0}


def test_clipping_by_the_largest_element_is_not_taken_for_the_norm() -> None:
    def body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        optimizer.zero_grad()
        backward(model)
        clip_grad_norm_(model.parameters(), 0.1, norm_type=float("inf"))
        optimizer.step()

    assert set(facts(looped(body), "grad_norm", Collection.OPTIMIZER)) == {None}


# ---- running statistics ----


def test_running_statistics_are_rows_with_their_change() -> None:
    model = normed()
    optimizer = sgd(model)
    norm: Any = list(model.children())[1]
    seen: list[torch.Tensor] = []

    def loop(_: object) -> None:
        for step in range(6):
            if step == 4:
                norm.eval()
            zero_first(model, optimizer, step)
            seen.append(norm.running_mean.clone())

    found = record(model, loop, optimizer, LOSS)
    assert found.names("buffers") == ["1.running_mean", "1.running_var"]
    info = next(t for t in found.manifest.layout.tensors if t.name == "1.running_mean")
    assert (info.kind, info.module, info.shape) == ("BatchNorm1d", "1", (32,))
    means = [float(one.mean()) for one in seen]
    assert found.values("1.running_mean", "mean") == pytest.approx(means, abs=1e-7)
    moved = [float((b - a).norm()) for a, b in itertools.pairwise(seen)]
    assert found.values("1.running_mean", "update_l2")[1:] == pytest.approx(moved, abs=1e-6)
    assert moved[-2:] == [0.0, 0.0]


def test_buffers_can_be_left_out() -> None:
    model = normed()
    optimizer = sgd(model)
    run = lambda _: train(model, optimizer, LOSS, digits(), steps=2)  # noqa: E731 - short
    for options in ({"collections": ["losses", "weights"]}, {"exclude": "running"}):
        assert not record(model, run, optimizer, LOSS, **options).names("buffers")


# ---- nothing is left, nothing is disturbed ----


def stepless_body(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad()
    backward(model)


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    backward(model)
    clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    if step % 3 == 0:
        with torch.no_grad():
            LOSS(model(X), Y)


@pytest.mark.parametrize("body", [zero_in_place, accumulate, never_zero, stepless_body, clipped])
def test_no_bit_of_training_is_changed(body: Callable[..., object]) -> None:
    ends = []
    for hooked in (True, False):
        model = normed()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        hook = watched(MemoryObjects(), model, optimizer, LOSS, save_interval=4, dense_steps=2)
        if not hooked:
            hook.close()
        torch.manual_seed(1)
        for step in range(20):
            body(model, optimizer, step)
        hook.close()
        ends.append([*model.state_dict().values(), *(p.grad for p in model.parameters())])
    for ours, theirs in zip(*ends, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_probes_do_not_keep_a_model_alive() -> None:
    model = mlp()
    optimizer = sgd(model)
    watched(MemoryObjects(), model, optimizer, LOSS)
    never_zero(model, optimizer, 0)
    backward(model)
    parameters, seen = list(model.parameters()), weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert seen() is None
    assert not any(p._backward_hooks for p in parameters)


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
