"""Initialisations and activations from which a network cannot learn, each with its repair."""

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


def dead_by_bias(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Biases start at -10, so no ReLU ever opens. Repair: 0."""
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 10))  # fmt: skip
    for i in (0, 2):
        nn.init.constant_(model[i].bias, -10.0 if variant == "faulty" else 0.0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def dead_in_cnn(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """A CNN under SGD with momentum at 0.8: one step shuts the ReLUs for good. Repair: 0.02."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    rate = 3.0 if variant == "faulty" else 0.02
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, digits(image=True), steps=steps, seed=seed)


def dead_output(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Regression with a ReLU behind the output: targets below 0 shut it. Repair: none there."""
    x, y, xv, yv = wave()
    data = (x, y - 1.5, xv, yv - 1.5)
    last = nn.ReLU() if variant == "faulty" else nn.Identity()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, seed=seed)


def tanh_saturated(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Weights of N(0, 1) in tanh layers: every unit sits at -1 or 1. Repair: Xavier."""
    layers: list[nn.Module] = []
    for _ in range(4):
        linear = nn.Linear(64, 64)
        if variant == "faulty":
            nn.init.normal_(linear.weight)
        else:
            nn.init.xavier_normal_(linear.weight, nn.init.calculate_gain("tanh"))
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def sigmoid_saturated(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Raw columns up to 1,700 into sigmoid units. Repair: standardised columns."""
    data = table("wine", standardised=variant != "faulty")
    model = nn.Sequential(nn.Linear(13, 32), nn.Sigmoid(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, size=32, seed=seed)


def all_alike(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Each weight starts at 0.05, so the units of a layer stay one unit. Repair: random weights."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                          nn.Linear(64, 10))  # fmt: skip
    if variant == "faulty":
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.05)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def zeros_in_cnn(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """All weights and biases of a CNN start at 0. Repair: PyTorch's own start."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    if variant == "faulty":
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, digits(image=True), steps=steps, seed=seed)


def unit_normal(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Weights of N(0, 1) in a ReLU network: the first loss is in the hundreds. Repair: He."""
    model: Any = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                          nn.Linear(128, 10))  # fmt: skip
    for i in (0, 2, 4):
        if variant == "faulty":
            nn.init.normal_(model[i].weight)
        else:
            nn.init.kaiming_normal_(model[i].weight, nonlinearity="relu")
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


class Tied(nn.Module):
    """Scores are products with the embedding itself."""

    def __init__(self, alphabet: int, std: float) -> None:
        super().__init__()
        self.emb = nn.Embedding(alphabet, 128)
        self.rnn, self.norm = nn.GRU(128, 128, batch_first=True), nn.LayerNorm(128)
        self.out = nn.Linear(128, alphabet, bias=False)
        self.out.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=std)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T) ids to (N, alphabet, T) scores."""
        out: Tensor = self.out(self.norm(self.rnn(self.emb(x))[0])).transpose(1, 2)
        return out


def tied_embedding(hook: Any, variant: str, seed: int, steps: int = 120) -> None:
    """Tied embeddings of N(0, 1), PyTorch's default: the first loss is far above ln V."""
    ids, alphabet = text()
    model = Tied(alphabet, 1.0 if variant == "faulty" else 0.05)
    optimizer, loss_fn = torch.optim.AdamW(model.parameters(), 2e-3), nn.CrossEntropyLoss()
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        window = windows(ids, 24, 16, order)
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        hook.on_step(step, "train", loss, x, out, target)
