"""The hook beside everything that real training loops do."""

from __future__ import annotations

import copy
import io
import math
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import (
    cnn,
    digits,
    evaluate,
    mlp,
    record,
    train,
    watched,
    weight,
)
from tests.unit.hook.recording import read
from trainwarden.hook import Hook
from trainwarden.model import Mode
from trainwarden.stats.catalog import Flag
from trainwarden.store.memory import MemoryObjects

CROSS_ENTROPY = nn.CrossEntropyLoss()


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def short(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> Any:
    return lambda _: train(model, optimizer, CROSS_ENTROPY, digits(), steps=steps)


# ---- it changes nothing ----


class Noisy(nn.Module):
    """Dropout and batch norm, so that a changed random state or buffer shows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = cnn()
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(self.drop(x))
        return out


def test_training_is_bit_identical_with_and_without_the_hook() -> None:
    states = []
    for hooked in (False, True):
        model, data = Noisy(), digits(256, image=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        store = MemoryObjects()
        hook = watched(store, model, optimizer, CROSS_ENTROPY) if hooked else None
        torch.manual_seed(7)
        losses = train(model, optimizer, CROSS_ENTROPY, data, steps=15)
        losses.append(evaluate(model, CROSS_ENTROPY, data))
        losses.extend(train(model, optimizer, CROSS_ENTROPY, data, steps=5))
        if hook:
            hook.close()
        states.append((losses, model.state_dict(), torch.get_rng_state()))
    (plain, weights, random), (watched_losses, watched_weights, watched_random) = states
    assert plain == watched_losses
    assert torch.equal(random, watched_random)
    assert all(torch.equal(weights[name], watched_weights[name]) for name in weights)


def test_after_close_torch_is_as_it_was() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = sgd(model)
    before = (torch.autograd.backward, functional.cross_entropy, torch.amp.GradScaler.step)
    with watched(MemoryObjects(), model, optimizer) as hook:
        train(model, optimizer, cross_entropy, digits(), steps=2)
        evaluate(model, loss_fn, digits())
    assert (torch.autograd.backward, functional.cross_entropy, torch.amp.GradScaler.step) == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in (*model.modules(), loss_fn))
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert not hook.active


def test_between_saved_steps_only_the_roots_hook_is_left() -> None:
    model = mlp()
    optimizer = sgd(model)
    seen: list[tuple[int, int]] = []
    with watched(MemoryObjects(), model, optimizer, CROSS_ENTROPY, save_interval=3, dense_steps=0):
        for _ in range(4):
            train(model, optimizer, CROSS_ENTROPY, digits(), steps=1)
            on_modules = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model)
            seen.append((on_modules, len(model._forward_pre_hooks) + len(model._forward_hooks)))
    assert seen == [(0, 1)] * 4
    assert torch.autograd.backward.__name__ == "backward"


# ---- copies ----


def test_a_copy_of_model_and_optimizer_is_not_watched_and_trains_as_well() -> None:
    model = mlp()
    optimizer = sgd(model)
    store = MemoryObjects()
    with watched(store, model, optimizer, CROSS_ENTROPY) as hook:
        train(model, optimizer, CROSS_ENTROPY, digits(), steps=2)
        twin, twin_optimizer = copy.deepcopy((model, optimizer))
        copied = copy.deepcopy(hook)
        losses = train(twin, twin_optimizer, CROSS_ENTROPY, digits(), steps=3)
        copied.record("nothing", 1.0)
        assert hook.step == 2
        assert len(losses) == 3
    assert read(store).steps == [0, 1]


class Copying(nn.Module):
    """Copies the whole model in the middle of its forward pass."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole, self.copies = [whole], list[nn.Module]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.copies:
            self.copies.append(self)  # the copies do not copy
            self.copies[:] = [
                pickle.loads(pickle.dumps(self.whole[0])),  # noqa: S301 - our own bytes
                copy.deepcopy(self.whole[0]),
            ]
        return x


def test_a_model_can_be_copied_in_the_middle_of_a_saved_step() -> None:
    model = mlp()
    optimizer, copying = sgd(model), Copying(model)
    model.append(copying)
    found = record(model, short(model, optimizer, 1), optimizer, CROSS_ENTROPY)
    assert found.steps == [0]
    for twin in copying.copies:
        assert len(train(twin, sgd(twin), CROSS_ENTROPY, digits(), steps=1)) == 1


def test_a_saved_model_loads_where_trainwarden_is_not_installed(tmp_path: Any) -> None:
    model = mlp()
    with watched(MemoryObjects(), model, sgd(model), CROSS_ENTROPY):
        torch.save(model, tmp_path / "model.pt")
        expected = model(torch.ones(1, 64)).tolist()
    script = textwrap.dedent(f"""
        import sys
        sys.modules["trainwarden"] = None  # an import fails
        import torch
        model = torch.load({str(tmp_path / "model.pt")!r}, weights_only=False)
        print(model(torch.ones(1, 64)).tolist())
    """)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(expected)


def test_state_dicts_are_untouched() -> None:
    model = mlp()
    optimizer = sgd(model)
    with watched(MemoryObjects(), model, optimizer, CROSS_ENTROPY):
        train(model, optimizer, CROSS_ENTROPY, digits(), steps=1)
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    assert torch.load(buffer).keys() == {"model", "optimizer"}


# ---- losses without a loss module ----


def cross_entropy(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(out, y)


def test_a_functional_loss_is_found_in_both_modes_with_its_labels() -> None:
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)

    def loop(_: Hook) -> None:
        losses.extend(train(model, optimizer, cross_entropy, digits(), steps=3))
        losses.append(evaluate(model, cross_entropy, digits()))

    found = record(model, loop, optimizer)
    assert found.scalars("loss") == pytest.approx(losses[:3], rel=1e-6)
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses[3:], rel=1e-5)
    assert sum(found.observations[0].labels["label/0"].values()) == 64
    assert found.observations[0].scalars["losses"].keys() == {"loss"}


def test_a_sum_of_losses_is_found_as_what_backward_was_called_on() -> None:
    model, sums = mlp(), list[float]()
    optimizer = sgd(model)

    def loss_fn(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = functional.cross_entropy(out, y) + 0.1 * out.square().mean()
        if total.requires_grad:
            sums.append(float(total.detach()))
        return total

    def loop(_: Hook) -> None:
        train(model, optimizer, loss_fn, digits(), steps=3)
        evaluate(model, loss_fn, digits())

    found = record(model, loop, optimizer)
    assert found.scalars("loss") == pytest.approx(sums, rel=1e-6)
    assert len(found.scalars("cross_entropy")) == 3
    held_out = found.of(Mode.EVAL)[0].scalars["losses"]
    assert held_out.keys() == {"cross_entropy"}, "a part is never compared with the whole"


def test_a_loss_that_the_model_computes_is_found_in_its_output() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.body(x)
            return {"loss": functional.cross_entropy(logits, labels), "logits": logits}

    model, losses = WithLoss(), list[float]()
    optimizer = sgd(model)

    def loop(_: Hook) -> None:
        x, y = digits()
        for _step in range(2):
            loss = model(x=x, labels=y)["loss"]
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses.append(float(model(x=x, labels=y)["loss"]))

    found = record(model, loop, optimizer)
    assert found.scalars("loss") == pytest.approx(losses[:2], rel=1e-6)
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses[2:], rel=1e-6)
    assert found.names("inputs") == ["input/0", "input/1"]
    assert found.names("outputs") == ["output/0"]


def test_a_plain_function_is_kept_through_the_hooks_own_call() -> None:
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)

    def own(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (out.logsumexp(1) - out.gather(1, y[:, None])[:, 0]).mean()

    def loop(hook: Hook) -> None:
        losses.extend(train(model, optimizer, hook.loss, digits(), steps=3))
        losses.append(evaluate(model, hook.loss, digits()))

    found = record(model, loop, optimizer, own)
    assert found.scalars("loss") == pytest.approx(losses[:3], rel=1e-6)
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses[3:], rel=1e-5)


def test_an_unreduced_loss_counts_with_its_mean() -> None:
    model, means = mlp(), list[float]()
    optimizer, loss_fn = sgd(model), nn.CrossEntropyLoss(reduction="none")

    def loop(_: Hook) -> None:
        x, y = digits()
        for _step in range(2):
            loss = loss_fn(model(x), y)
            means.append(float(loss.detach().mean()))
            loss.sum().backward()
            optimizer.step()

    assert record(model, loop, optimizer, loss_fn).scalars("loss") == pytest.approx(means)


def test_training_losses_are_not_mixed_with_a_check_without_gradients() -> None:
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)

    def loop(_: Hook) -> None:
        for _step in range(3):
            losses.extend(train(model, optimizer, CROSS_ENTROPY, digits(), steps=1))
            with torch.no_grad():  # forgot model.eval()
                CROSS_ENTROPY(model(torch.zeros(7, 64)), torch.zeros(7, dtype=torch.long))

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.scalars("loss") == pytest.approx(losses)
    assert found.values("input/0", "n") == [64.0 * 64] * 3


# ---- loops ----


@pytest.mark.parametrize("divided", [True, False])
def test_micro_batches_are_one_step_with_the_mean_loss(*, divided: bool) -> None:
    model, means = mlp(), list[float]()
    optimizer = sgd(model)

    def loop(_: Hook) -> None:
        x, y = digits(256)
        for _step in range(3):
            optimizer.zero_grad()
            parts = []
            for at in range(0, 256, 64):
                loss = CROSS_ENTROPY(model(x[at : at + 64]), y[at : at + 64])
                parts.append(float(loss.detach()))
                if divided:
                    loss /= 4
                loss.backward()
            optimizer.step()
            means.append(sum(parts) / 4)

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.steps == [0, 1, 2]
    assert found.scalars("loss") == pytest.approx(means, rel=1e-6)
    automatic = record(model, loop, optimizer)
    assert automatic.scalars("loss") == pytest.approx(means[3:], rel=1e-6)


def test_frozen_shared_and_unused_parameters_are_what_they_are() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.a = nn.Linear(64, 16), nn.Linear(16, 16)
            self.b, self.unused = nn.Linear(16, 10), nn.Linear(3, 3)
            self.tied = nn.Linear(16, 16)
            self.tied.weight = self.a.weight
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.b(self.tied(self.a(self.frozen(x))))
            return out

    torch.manual_seed(0)
    model = Odd()
    optimizer = sgd(model)
    found = record(model, short(model, optimizer), optimizer, CROSS_ENTROPY)
    tensors = {t.name: t for t in found.manifest.layout.tensors}
    assert tensors["frozen.weight"].trainable is False
    assert tensors["a.weight"].trainable is True
    assert "gradient/frozen.weight" not in tensors
    assert "tied.weight" not in tensors, "a shared tensor has one row"
    assert math.isnan(found.values("gradient/unused.weight", "n")[0])
    assert found.values("frozen.weight", "update_l2")[1] == 0.0


def test_parameters_that_come_or_thaw_later_get_rows_of_their_own() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        train(model, optimizer, CROSS_ENTROPY, digits(), steps=2)
        model[0].requires_grad_(True)
        model.append(nn.Linear(10, 10))
        optimizer.add_param_group({"params": list(model[3].parameters())})
        train(model, optimizer, CROSS_ENTROPY, digits(), steps=2)

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    gradient, added = (found.values(name, "n") for name in ("gradient/0.weight", "3.weight"))
    assert [math.isnan(value) for value in gradient] == [True, True, False, False]
    assert [math.isnan(value) for value in added] == [True, True, False, False]


def test_lazy_modules_get_rows_when_they_are_born() -> None:
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = record(model, short(model, optimizer), optimizer, CROSS_ENTROPY)
    assert found.values("0.weight", "n") == [64.0 * 16] * 3


def test_two_optimizers_are_one_step_and_each_gives_its_own_gradients() -> None:
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = sgd(generator), sgd(critic, 0.01)

    def loop(_: Hook) -> None:
        for _step in range(3):
            second.zero_grad()
            critic(generator(torch.randn(16, 4)).detach()).mean().backward()
            second.step()
            second.zero_grad()  # the critic's gradients are gone before the generator steps
            first.zero_grad()
            critic(generator(torch.randn(16, 4))).mean().backward()
            first.step()

    roots: dict[str, nn.Module] = {"g": generator, "d": critic}
    found = record(roots, loop, [first, second])
    assert found.steps == [0, 1, 2]
    for name in ("gradient/g.weight", "gradient/d.0.weight"):
        assert not any(math.isnan(value) for value in found.values(name, "n")), name
    assert found.scalars("lr_0", "optimizer") == pytest.approx([0.1] * 3)
    assert found.scalars("1.lr_0", "optimizer") == pytest.approx([0.01] * 3)
    assert found.names("activations") == ["activation/d.1"]


def test_the_optimizer_is_found_when_it_is_not_given() -> None:
    model, other = mlp(), nn.Linear(2, 2)
    optimizer, foreign = sgd(model), sgd(other)

    def loop(_: Hook) -> None:
        for _step in range(2):
            other(torch.ones(1, 2)).sum().backward()
            foreign.step()  # not ours: no step of the job
            train(model, optimizer, CROSS_ENTROPY, digits(), steps=1)

    found = record(model, loop)
    assert found.steps == [0, 1]
    assert found.scalars("lr_0", "optimizer") == pytest.approx([0.1, 0.1])


def test_training_in_eval_mode_is_training_and_told() -> None:
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)

    def loop(_: Hook) -> None:
        model.eval()
        x, y = digits()
        for _step in range(4):
            optimizer.zero_grad()
            loss = CROSS_ENTROPY(model(x), y)
            losses.append(float(loss.detach()))
            loss.backward()
            optimizer.step()

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.steps == [0, 1, 2, 3]
    assert found.of(Mode.EVAL) == []
    assert found.scalars("loss") == pytest.approx(losses)
    assert found.scalars("train_mode", "optimizer") == [0.0] * 4


def test_an_evaluation_with_gradients_on_is_still_an_evaluation() -> None:
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)
    x, y = digits()

    def loop(_: Hook) -> None:
        for _epoch in range(2):
            train(model, optimizer, CROSS_ENTROPY, (x, y), steps=2)
            model.eval()
            losses.append(float(CROSS_ENTROPY(model(x), y).detach()))

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses)
    assert found.steps == [0, 1, 2, 3]


def test_lbfgs_with_its_closure_is_followed() -> None:
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = digits(128)

    def closure() -> float:
        optimizer.zero_grad()
        loss = CROSS_ENTROPY(model(x), y)
        loss.backward()
        return float(loss.detach())

    def loop(_: Hook) -> None:
        for _step in range(3):
            optimizer.step(closure)  # type: ignore[no-untyped-call]

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.steps == [0, 1, 2]
    assert len(found.scalars("loss")) == 3


def test_a_resumed_loop_goes_on_counting_where_the_user_says() -> None:
    model = mlp()
    optimizer = sgd(model)
    found = record(model, short(model, optimizer), optimizer, CROSS_ENTROPY, start_step=1000)
    assert found.steps == [1000, 1001, 1002]


# ---- precision ----


def scaled_loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    *,
    steps: int = 6,
    unscale: bool = False,
    loss_fn: Callable[..., torch.Tensor] = functional.cross_entropy,
) -> list[tuple[float, float]]:
    """Train with autocast; return the true loss and gradient (mean of absolutes) of each step."""
    x, y = digits(64)
    seen = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = loss_fn(out.float(), y)
        scaled = scaler.scale(loss)
        assert isinstance(scaled, torch.Tensor)
        scaled.backward()  # type: ignore[no-untyped-call]
        if unscale:
            scaler.unscale_(optimizer)
        first = next(model.parameters())
        assert first.grad is not None
        grad = first.grad.clone() if unscale else first.grad / scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        seen.append((float(loss.detach()), float(grad.abs().mean())))
    return seen


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_with_a_grad_scaler_losses_and_gradients_are_the_true_ones(
    *, unscale: bool, given: bool
) -> None:
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss_fn = nn.CrossEntropyLoss()
    seen: list[tuple[float, float]] = []

    def loop(_: Hook) -> None:
        seen.extend(scaled_loop(model, optimizer, scaler, unscale=unscale, loss_fn=loss_fn))

    found = record(model, loop, optimizer, loss_fn if given else None)
    assert found.scalars("loss") == pytest.approx([loss for loss, _ in seen], rel=1e-5)
    gradients = found.values("gradient/0.weight", "abs_mean")
    assert gradients == pytest.approx([gradient for _, gradient in seen], rel=1e-4)
    assert found.scalars("loss_scale", "optimizer") == [1024.0] * 6
    assert found.scalars("found_inf", "optimizer") == [0.0] * 6
    assert found.values("gradient/0.weight", "flags") == [float(Flag.SCALED)] * 6


def test_steps_that_the_scaler_skips_are_counted_and_flagged() -> None:
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**24)

    def loop(hook: Hook) -> None:
        scaled_loop(model, optimizer, scaler, steps=12)
        assert hook.step == 12

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    skipped = found.scalars("found_inf", "optimizer")
    assert skipped[0] == 1.0
    assert skipped[-1] == 0.0
    assert found.steps == [*range(11)]
    assert found.scalars("loss_scale", "optimizer")[:2] == [2.0**24, 2.0**23]
    flags = found.values("gradient/0.weight", "flags")
    assert flags == [float(Flag.SCALED | (Flag.SKIPPED if skip else 0)) for skip in skipped]
    nonfinite = found.values("gradient/0.weight", "nonfinite")
    assert nonfinite[0] > 0
    assert nonfinite[-1] == 0


def test_an_optimizer_that_unscales_in_its_own_kernel_gives_true_gradients() -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    seen: list[tuple[float, float]] = []
    found = record(
        model, lambda _: seen.extend(scaled_loop(model, optimizer, scaler, steps=10)), optimizer
    )
    skipped = found.scalars("found_inf", "optimizer")
    assert (skipped[0], skipped[-1]) == (1.0, 0.0)
    good = [i for i, skip in enumerate(skipped) if not skip]
    gradients = found.values("gradient/0.weight", "abs_mean")
    assert [gradients[i] for i in good] == pytest.approx([seen[i][1] for i in good], rel=1e-3)


def test_a_disabled_scaler_leaves_no_trace() -> None:
    model = mlp()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", enabled=False)
    found = record(
        model, lambda _: scaled_loop(model, optimizer, scaler, steps=2), optimizer, CROSS_ENTROPY
    )
    assert found.steps == [0, 1]
    assert found.scalars("loss_scale", "optimizer") == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_activations_are_read_in_their_own_type(dtype: torch.dtype) -> None:
    model = cnn()
    optimizer = sgd(model)
    x, y = digits(64, image=True)

    def loop(_: Hook) -> None:
        with torch.autocast("cpu", dtype=dtype):
            loss = CROSS_ENTROPY(model(x), y)
        loss.backward()
        optimizer.step()

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    tensors = {t.name: t for t in found.manifest.layout.tensors}
    assert tensors["activation/4"].dtype == str(dtype).removeprefix("torch.")
    assert tensors["gradient/0.weight"].dtype == "float32"
    assert 0 < found.values("activation/4", "zero_fraction")[0] < 1
    assert found.values("activation/4", "ch_n") == [8.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_any_precision_are_exact(dtype: torch.dtype) -> None:
    model = mlp().to(dtype)
    optimizer = sgd(model)
    x, y = digits(64)
    expected: list[float] = []

    def loop(_: Hook) -> None:
        for _step in range(3):
            expected.append(float(weight(model, 0).detach().double().norm()))
            loss = functional.cross_entropy(model(x.to(dtype)).float(), y)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()

    found = record(model, loop, optimizer)
    assert found.values("0.weight", "l2") == pytest.approx(expected, rel=1e-6)
    assert found.values("0.weight", "update_l2")[1] > 0


# ---- odd tensors ----


def test_sparse_gradients_count_their_zeros() -> None:
    embedding, head = nn.Embedding(50, 4, sparse=True), nn.Linear(4, 2)
    model = nn.Sequential(embedding, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        model(torch.tensor([1, 2, 2])).sum().backward()
        optimizer.step()

    found = record(model, loop, optimizer)
    assert found.values("gradient/0.weight", "n") == [200.0]
    assert found.values("gradient/0.weight", "n_zero") == [192.0]
    assert found.values("input/0", "max") == [2.0]


class Strange(nn.Module):
    """Complex, integer and meta parameters, one without elements, and no module below it."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(4, dtype=torch.complex64))
        self.table = nn.Parameter(torch.arange(4), requires_grad=False)
        self.nothing = nn.Parameter(torch.empty(0))
        self.ghost = nn.Parameter(torch.empty(3, device="meta"))
        self.scalar = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.phase * x).abs().sum() * self.scalar + self.nothing.sum()


def test_parameters_of_odd_kinds_are_captured_or_left_out() -> None:
    model = Strange()
    optimizer = torch.optim.SGD([model.phase, model.scalar, model.nothing], lr=0.1)

    def loop(_: Hook) -> None:
        for _step in range(2):
            model(torch.ones(4)).backward()
            optimizer.step()

    found = record(model, loop, optimizer)
    assert found.values("phase", "n") == [8.0, 8.0]
    assert found.values("table", "max") == [3.0, 3.0]
    assert found.values("nothing", "n") == [0.0, 0.0]
    assert found.values("scalar", "n") == [1.0, 1.0]
    assert "ghost" not in found.manifest.layout.names
    assert len(found.scalars("loss")) == 2


def test_channels_last_and_transposed_weights_are_read_in_place() -> None:
    model = cnn().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        model[6].weight = nn.Parameter(torch.randn(512, 10).t())
    optimizer = sgd(model, 1e-3)
    found = record(
        model,
        lambda _: train(model, optimizer, CROSS_ENTROPY, digits(64, image=True), steps=3),
        optimizer,
        CROSS_ENTROPY,
    )
    assert found.values("3.weight", "update_l2")[1] > 0
    assert found.values("6.weight", "update_l2")[1] > 0


def test_a_module_without_parameters_can_be_watched() -> None:
    model, free = nn.Sequential(nn.ReLU()), nn.Parameter(torch.randn(3))
    optimizer = torch.optim.SGD([free], lr=0.1)

    def loop(_: Hook) -> None:
        model(free * 2).sum().backward()
        optimizer.step()

    found = record(model, loop, optimizer)
    assert found.names("weights") == []
    assert found.names("activations") == ["activation/0"]


# ---- torch.compile ----


@pytest.mark.parametrize("own_class", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_compiled_model_gives_all_but_activations_and_says_so(
    *, before: bool, own_class: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torch.compiler.reset()
    plain: nn.Module = Noisy() if own_class else cnn()
    losses, optimizer, data, store = (
        list[float](),
        sgd(plain),
        digits(128, image=True),
        MemoryObjects(),
    )
    compiled = torch.compile(plain, backend="eager", fullgraph=True)
    assert isinstance(compiled, nn.Module)
    with watched(store, compiled if before else plain, optimizer, CROSS_ENTROPY):
        losses.extend(train(compiled, optimizer, CROSS_ENTROPY, data, steps=12))
        losses.append(evaluate(compiled, CROSS_ENTROPY, data))
    found = read(store)
    assert found.scalars("loss") == pytest.approx(losses[:11])
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses[12:], rel=1e-5)
    assert not any(math.isnan(v) for v in found.values(found.names("gradients")[0], "n"))
    assert len(found.names("inputs")) == (1 if before else 0)
    assert found.names("activations") == []
    assert sum("activations are not captured" in r.message for r in caplog.records) == 1


def test_saved_steps_do_not_recompile() -> None:
    torch.compiler.reset()
    frames = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        frames.append(graph)
        return graph.forward

    model = mlp()
    optimizer = sgd(model)
    compiled = torch.compile(model, backend=backend)
    with watched(
        MemoryObjects(), compiled, optimizer, CROSS_ENTROPY, save_interval=2, dense_steps=0
    ):
        train(compiled, optimizer, CROSS_ENTROPY, digits(), steps=8)
    assert len(frames) == 1


def test_a_model_compiled_in_place_is_followed_by_its_optimizer() -> None:
    torch.compiler.reset()
    model, losses = mlp(), list[float]()
    optimizer = sgd(model)
    model.compile(backend="eager", fullgraph=True)

    def loop(_: Hook) -> None:
        losses.extend(train(model, optimizer, CROSS_ENTROPY, digits(), steps=3))
        losses.append(evaluate(model, CROSS_ENTROPY, digits()))

    found = record(model, loop, optimizer, CROSS_ENTROPY)
    assert found.steps == [0, 1, 2]
    assert found.scalars("loss") == pytest.approx(losses[:3])
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses[3:], rel=1e-5)
