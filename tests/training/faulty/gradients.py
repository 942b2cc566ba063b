"""Gradients that vanish or explode on their way through a network, each with its repair."""

from __future__ import annotations

from typing import Any

import torch
from programs import (  # type: ignore[import-not-found]
    digits,
    fit,
    table,
    text,
    wave,
    windows,
)
from torch import Tensor, nn


class RowLSTM(nn.Module):
    """Reads an image of 8 x 8 row by row through a stack of recurrent layers."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 32, depth, batch_first=True)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 64) pixels to (N, 10) scores."""
        out: Tensor = self.out(self.rnn(x.view(-1, 8, 8))[0][:, -1])
        return out


def stacked_lstm(hook: Any, variant: str, seed: int, steps: int = 150) -> None:
    """Ten LSTM layers on top of each other: hardly any gradient reaches the first. Repair: one."""
    model = RowLSTM(10 if variant == "faulty" else 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def deep_tanh(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Twelve tanh layers with weights of N(0, 0.01), as tutorials have it. Repair: Xavier."""
    layers: list[nn.Module] = []
    for _ in range(12):
        linear = nn.Linear(64, 64)
        if variant == "faulty":
            nn.init.normal_(linear.weight, std=0.01)
        else:
            nn.init.xavier_normal_(linear.weight, nn.init.calculate_gain("tanh"))
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def sigmoid_cnn(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """A LeNet of six convolutions with sigmoids under SGD. Repair: ReLU and batch normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(1, 8, 3, padding=1)]
    for _ in range(5):
        if variant == "faulty":
            layers += [nn.Sigmoid(), nn.Conv2d(8, 8, 3, padding=1)]
        else:
            layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    last = nn.Sigmoid() if variant == "faulty" else nn.ReLU()
    model = nn.Sequential(*layers, last, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, digits(image=True), steps=steps, seed=seed)


def sgd_diverges(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """SGD on a table of raw units with a rate for standardised ones: the loss leaves for infinity.

    Repair: a rate of 0.01 and standardised columns.
    """
    x, y, xv, yv = table("diabetes", standardised=variant != "faulty")
    mean, std = y.mean(), y.std()
    data = (x, (y - mean) / std, xv, (yv - mean) / std)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, size=32, seed=seed)


def sgd_rate(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """Regression under SGD at 1.0: each step overshoots further than the last. Repair: 0.05."""
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 1))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 1.0 if variant == "faulty" else 0.05)
    fit(hook, model, optimizer, nn.MSELoss(), wave(), steps=steps, seed=seed)


class Recurrent(nn.Module):
    """A plain recurrent language model over characters."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(alphabet, 32)
        self.rnn = nn.RNN(32, 64, batch_first=True, nonlinearity="relu")
        self.out = nn.Linear(64, alphabet)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, alphabet, T) scores."""
        out: Tensor = self.out(self.rnn(self.emb(x))[0]).transpose(1, 2)
        return out


def rnn_unclipped(hook: Any, variant: str, seed: int, steps: int = 150) -> None:
    """A ReLU RNN whose recurrent weights amplify, without clipping. Repair: both."""
    ids, alphabet = text()
    model: Any = Recurrent(alphabet)
    with torch.no_grad():
        model.rnn.weight_hh_l0.copy_(torch.eye(64) * (1.2 if variant == "faulty" else 1.0))
    optimizer, loss_fn = torch.optim.Adam(model.parameters(), 3e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        window = windows(ids, 48, 16, order)
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        if variant != "faulty":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, target)


def discriminator_wins(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A generator minimises log(1 - D) against a discriminator that takes four steps to its one.

    Repair: one slow step, and normalisation in the generator.
    """
    x, *_ = digits()
    x, bad = torch.tanh(x), variant == "faulty"
    between = nn.ReLU if bad else lambda: nn.Sequential(nn.BatchNorm1d(64), nn.ReLU())
    model = nn.Sequential(
        nn.Linear(12, 64), between(), nn.Linear(64, 64), between(), nn.Linear(64, 64), nn.Tanh()
    )
    critic = nn.Sequential(
        nn.Linear(64, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), 5e-4, betas=(0.5, 0.999))
    other = torch.optim.Adam(critic.parameters(), 2e-3 if bad else 2e-4, betas=(0.5, 0.999))

    def loss_fn(score: Tensor) -> Tensor:
        return -nn.functional.softplus(score).mean()  # log(1 - D)

    hook.on_start(model, optimizer, loss_fn)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for _ in range(4 if bad else 1):
            real = x[torch.randint(0, len(x), (64,), generator=generator)]
            with torch.no_grad():
                made = model(torch.randn(64, 12, generator=generator))
            other.zero_grad()
            lost: Tensor = nn.functional.softplus(-critic(real)).mean() - loss_fn(critic(made))
            lost.backward()  # type: ignore[no-untyped-call]
            other.step()
        noise = torch.randn(64, 12, generator=generator)
        optimizer.zero_grad()
        made = model(noise)
        loss = loss_fn(critic(made))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        hook.on_step(step, "train", loss, noise, made, torch.zeros(64, 1))
