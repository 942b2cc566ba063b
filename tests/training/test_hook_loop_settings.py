"""Settings of optimizers, clipping of gradients, running statistics."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.training.bodies import LOSS, backward, facts, looped, normed, sgd, zero_first
from tests.training.loops import digits, mlp, record, train
from trainwarden.model import Collection


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
                "decoupled_0": 1.0,
            },
        ),
        (
            lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.3),
            {
                "lr_0": 1e-3,
                "momentum_0": 0.9,
                "weight_decay_0": 0.3,
                "eps_0": 1e-8,
                "adaptive_0": 1.0,
                "decoupled_0": 0.0,
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
    ids=["sgd", "adamw", "adam", "rmsprop"],
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
