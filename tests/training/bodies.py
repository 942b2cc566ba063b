"""Bodies of training loops, sound and faulty, and what the hook told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.training.loops import digits, mlp, record
from tests.unit.hook.recording import Recording
from trainwarden.model import Collection, Mode

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


def zero_first(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def zero_in_place(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
    optimizer.zero_grad(set_to_none=False)
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
