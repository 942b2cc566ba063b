"""What the optimizer holds, against what the model has."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.training.bodies import LOSS, Gan, X, Y, facts, looped, sgd, with_closures, zero_first
from tests.training.loops import mlp, record
from tests.unit.hook.recording import Recording

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
