"""What the hook captures of real training, held against torch's own numbers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.loops import bias, cnn, diabetes, digits, evaluate, mlp, record, train, weight
from trainwarden.hook import Hook
from trainwarden.model import Mode


def test_losses_are_those_of_the_loop() -> None:
    model, loss_fn, losses = mlp(), nn.CrossEntropyLoss(), list[float]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = record(
        model,
        lambda _: losses.extend(train(model, optimizer, loss_fn, digits(), steps=25)),
        optimizer,
        loss_fn,
    )
    assert found.steps == [*range(10), 10, 20]
    assert found.scalars("loss") == pytest.approx([losses[step] for step in found.steps], rel=1e-6)


def test_gradients_and_weights_are_those_before_the_update() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected: list[tuple[float, float]] = []

    def loop(_: Hook) -> None:
        x, y = digits()
        for _step in range(5):
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            first = weight(model, 0)
            assert first.grad is not None
            expected.append((float(first.detach().norm()), float(first.grad.abs().mean())))
            optimizer.step()

    found = record(model, loop, optimizer, loss_fn)
    assert found.values("0.weight", "l2") == pytest.approx([w for w, _ in expected], rel=1e-5)
    mean = found.values("gradient/0.weight", "abs_mean")
    assert mean == pytest.approx([g for _, g in expected], rel=1e-5)


def test_updates_are_the_change_since_the_previous_saved_step() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights: list[torch.Tensor] = []

    def loop(_: Hook) -> None:
        for _step in range(5):
            weights.append(weight(model, 0).detach().clone())
            train(model, optimizer, loss_fn, digits(), steps=1)

    found = record(model, loop, optimizer, loss_fn, save_interval=2, dense_steps=0)
    updates = found.values("0.weight", "update_l2")
    assert math.isnan(updates[0])
    change = [float((weights[i] - weights[i - 2]).norm()) for i in (2, 4)]
    assert updates[1:] == pytest.approx(change, rel=1e-4)


def test_updates_can_be_left_out() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = lambda _: train(model, optimizer, loss_fn, digits(), steps=3)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn, updates=False)
    assert all(math.isnan(value) for value in found.values("0.weight", "u_n"))


def test_every_parameter_has_its_module_kind_depth_and_collection() -> None:
    model, loss_fn = cnn(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    data = digits(128, image=True)
    found = record(
        model, lambda _: train(model, optimizer, loss_fn, data, steps=2), optimizer, loss_fn
    )
    tensors = {t.name: t for t in found.manifest.layout.tensors}
    assert tensors["0.weight"].kind == "Conv2d"
    assert tensors["0.weight"].shape == (8, 1, 3, 3)
    assert [tensors[name].depth for name in ("0.weight", "1.weight", "3.weight", "6.weight")] == [
        0, 1, 3, 5,
    ]  # fmt: skip
    assert tensors["0.bias"].collection == "biases"
    assert tensors["gradient/6.weight"].collection == "gradients"
    assert found.names("activations") == ["activation/2", "activation/4"]
    assert tensors["activation/2"].shape == (8, 8, 8)


def test_activity_of_each_channel_is_counted() -> None:
    model, loss_fn = cnn(), nn.CrossEntropyLoss()
    with torch.no_grad():
        bias(model, 3)[2] = -1000.0  # this channel is dead
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = digits(64, image=True)
    seen: list[torch.Tensor] = []

    def loop(_: Hook) -> None:
        handle = model[4].register_forward_hook(
            lambda _m, _i, out: seen.append(out.detach().clone())
        )
        train(model, optimizer, loss_fn, (x, y), steps=1)
        handle.remove()

    found = record(model, loop, optimizer, loss_fn)
    activity = found.observations[0].channels["activation/4"]
    assert activity.seen == 64 * 8 * 8
    assert activity.active.tolist() == (seen[0] > 0).sum(dim=(0, 2, 3)).tolist()
    assert found.values("activation/4", "ch_dead") == [1.0]
    assert found.values("activation/4", "ch_n") == [8.0]


def test_a_large_activation_is_sampled_and_says_so() -> None:
    torch.manual_seed(0)
    model, loss_fn = (
        nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 10)),
        nn.CrossEntropyLoss(),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = record(
        model,
        lambda _: train(model, optimizer, loss_fn, digits(), steps=1, batch=512),
        optimizer,
        loss_fn,
    )
    assert found.values("activation/1", "flags") == [1.0]
    assert found.values("activation/1", "n")[0] <= 2**15
    assert found.observations[0].channels["activation/1"].seen == 256


def _three_steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: nn.Module,
    data: tuple[torch.Tensor, torch.Tensor],
    _: Hook,
) -> None:
    train(model, optimizer, loss_fn, data, steps=3)


def test_an_inplace_relu_is_measured_before_the_next_module_changes_it() -> None:
    recorded = []
    for inplace in (False, True):
        model, loss_fn = cnn(inplace=inplace), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = digits(128, image=True)
        found = record(
            model,
            partial(_three_steps, model, optimizer, loss_fn, data),
            optimizer,
            loss_fn,
        )
        recorded.append(found)
    for stat in ("abs_mean", "zero_fraction", "ch_dead"):
        for name in ("activation/2", "activation/4"):
            assert recorded[0].values(name, stat) == recorded[1].values(name, stat)


def test_a_module_used_twice_has_a_row_for_each_use() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.act = nn.Linear(64, 16), nn.Linear(16, 10), nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.act(self.b(self.act(self.a(x))))
            return out

    model, loss_fn = Twice(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = lambda _: train(model, optimizer, loss_fn, digits(), steps=2)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn)
    assert found.names("activations") == ["activation/act", "activation/act:1"]


def test_relu_functions_are_named_after_the_module_before_them() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.a, self.b = nn.Conv2d(1, 4, 3), nn.Linear(144, 16), nn.Linear(16, 10)
            self.act = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = functional.relu(self.conv(x), inplace=True).flatten(1)
            x = torch.relu(torch.relu(self.a(x)))
            out: torch.Tensor = self.act(self.b(x)) - functional.relu(x).mean()
            return out

    torch.manual_seed(0)
    model, loss_fn = Functional(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = digits(128, image=True)
    loop = lambda _: train(model, optimizer, loss_fn, data, steps=3)  # noqa: E731 - short
    original = (torch.relu, functional.relu)
    found = record(model, loop, optimizer, loss_fn)
    names = ["conv.relu", "a.relu", "a.relu:1", "act", "act.relu"]
    assert found.names("activations") == [f"activation/{name}" for name in names]
    for obs in found.observations:
        assert sorted(obs.channels) == sorted(found.names("activations"))
    assert found.values("activation/conv.relu", "ch_n") == [4.0] * 3
    assert found.values("activation/a.relu", "zero_fraction")[0] > 0
    assert (torch.relu, functional.relu) == original


def test_saturation_bounds_are_those_of_the_activation_function() -> None:
    torch.manual_seed(0)
    model, loss_fn = (
        nn.Sequential(nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10)),
        nn.CrossEntropyLoss(),
    )
    with torch.no_grad():
        weight(model, 0).mul_(1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = lambda _: train(model, optimizer, loss_fn, digits(), steps=1)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn)
    assert found.values("activation/1", "saturated_fraction")[0] > 0.9


def test_inputs_outputs_and_labels_are_those_of_the_batch() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = digits()
    loop = lambda _: train(model, optimizer, loss_fn, (x, y), steps=2)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn)
    assert found.values("input/0", "mean") == pytest.approx(
        [float(x[:64].mean()), float(x[64:128].mean())], rel=1e-5
    )
    assert found.values("output/0", "n") == [640.0, 640.0]
    assert found.values("label/0", "max") == [9.0, 9.0]
    for step, obs in enumerate(found.observations):
        counts = torch.bincount(y[64 * step : 64 * step + 64], minlength=10)
        assert obs.labels["label/0"] == dict(enumerate(counts.tolist()))


def test_learning_rates_follow_the_scheduler_and_each_group_has_its_own() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    groups: list[dict[str, Any]] = [
        {"params": list(model[0].parameters()), "lr": 0.1},
        {"params": list(model[2].parameters())},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def loop(_: Hook) -> None:
        for _step in range(3):
            train(model, optimizer, loss_fn, digits(), steps=1)
            scheduler.step()

    found = record(model, loop, optimizer, loss_fn)
    assert found.scalars("lr_0", "optimizer") == pytest.approx([0.1, 0.05, 0.025])
    assert found.scalars("lr_1", "optimizer") == pytest.approx([0.01, 0.005, 0.0025])


def test_an_evaluation_pass_is_one_observation_weighted_by_batch_size() -> None:
    model, loss_fn, losses = mlp(), nn.CrossEntropyLoss(), list[float]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = digits(512)
    held_out = (x[:250], y[:250])

    def loop(hook: Hook) -> None:
        for epoch in range(3):
            train(model, optimizer, loss_fn, (x, y), steps=4)
            losses.append(evaluate(model, loss_fn, held_out))
            hook.record("accuracy", epoch / 10)

    found = record(model, loop, optimizer, loss_fn)
    passes = found.of(Mode.EVAL)
    assert [(obs.step, obs.mode_step) for obs in passes] == [(4, 0), (8, 1), (12, 2)]
    assert found.scalars("loss", mode=Mode.EVAL) == pytest.approx(losses, rel=1e-5)
    assert found.scalars("accuracy", "metrics", Mode.EVAL) == [0.0, 0.1, 0.2]
    assert passes[0].labels["label/0"] == dict(enumerate(torch.bincount(y[:250]).tolist()))
    assert len(found.scalars("loss")) == 11  # steps 0 to 10: evaluation batches are no steps
    order = [obs.mode for obs in found.observations]
    assert order[4] is Mode.EVAL, "an evaluation comes after the steps before it"


def test_evaluation_can_be_left_out() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        train(model, optimizer, loss_fn, digits(), steps=2)
        evaluate(model, loss_fn, digits())

    assert record(model, loop, optimizer, loss_fn, evaluation=False).of(Mode.EVAL) == []


def test_collections_and_patterns_choose_what_is_captured() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = lambda _: train(model, optimizer, loss_fn, digits(), steps=2)  # noqa: E731 - short
    chosen = record(model, loop, optimizer, loss_fn, collections=["losses", "gradients"])
    assert {t.collection for t in chosen.manifest.layout.tensors} == {"gradients"}
    assert chosen.observations[0].scalars.keys() == {"losses"}
    some = record(model, loop, optimizer, loss_fn, include=r"2\.weight", exclude="^gradient")
    assert [t.name for t in some.manifest.layout.tensors] == ["2.weight"]


def test_outputs_of_chosen_modules_count_as_activations() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = lambda _: train(model, optimizer, loss_fn, digits(), steps=2)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn, activation_modules="^[02]$")
    assert found.names("activations") == ["activation/0", "activation/2"]


def test_a_regression_has_no_classes_but_its_targets_have_statistics() -> None:
    torch.manual_seed(0)
    model, loss_fn = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loop = lambda _: train(model, optimizer, loss_fn, diabetes(), steps=3)  # noqa: E731 - short
    found = record(model, loop, optimizer, loss_fn)
    assert found.observations[0].labels == {}
    assert found.values("label/0", "n") == [64.0] * 3


@pytest.mark.parametrize(
    ("target", "loss_fn", "counts"),
    [
        pytest.param(
            torch.tensor([[0.0], [1.0], [1.0], [1.0]]),
            nn.BCEWithLogitsLoss(),
            {0: 1, 1: 3},
            id="binary",
        ),
        pytest.param(
            functional.one_hot(torch.tensor([2, 0, 2, 1]), 3).float(),
            nn.CrossEntropyLoss(),
            {0: 1, 1: 1, 2: 2},
            id="one-hot",
        ),
        pytest.param(
            torch.tensor([2, -100, 2, 1]), nn.CrossEntropyLoss(), {1: 1, 2: 2}, id="ignored"
        ),
        pytest.param(torch.rand(4, 3), nn.MSELoss(), None, id="numbers"),
    ],
)
def test_labels_are_counted_in_whatever_form_they_come(
    target: torch.Tensor, loss_fn: nn.Module, counts: dict[int, int] | None
) -> None:
    model = nn.Linear(5, 1 if target.shape[-1] == 1 else 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(_: Hook) -> None:
        loss_fn(model(torch.rand(4, 5)), target).backward()
        optimizer.step()

    found = record(model, loop, optimizer, loss_fn)
    assert found.observations[0].labels.get("label/0") == counts


def test_records_belong_to_the_step_just_made_and_the_last_value_wins() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(hook: Hook) -> None:
        for step in range(25):
            train(model, optimizer, loss_fn, digits(), steps=1)
            hook.record("seen", step)
            hook.record("norm", torch.tensor(float(step)), collection="mine")

    found = record(model, loop, optimizer, loss_fn)
    assert found.scalars("seen", "metrics")[:12] == [float(step) for step in found.steps[:12]]
    assert found.scalars("norm", "mine")[11] == 20.0
    last = found.of(Mode.TRAIN)[-1]
    assert (last.step, last.scalars["metrics"]["seen"]) == (25, 24.0), "what is left is not lost"


def test_a_recorded_tensor_is_reduced_to_statistics() -> None:
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop(hook: Hook) -> None:
        train(model, optimizer, loss_fn, digits(), steps=1)
        hook.record("attention", torch.arange(6.0).view(2, 3))
        hook.record("scores", np.array([1.0, float("nan")]), collection="mine")

    found = record(model, loop, optimizer, loss_fn)
    assert found.names("custom") == ["attention"]
    assert found.names("mine") == ["scores"]
    assert found.values("attention", "mean") == [2.5]
    assert found.values("scores", "n_nan") == [1.0]
