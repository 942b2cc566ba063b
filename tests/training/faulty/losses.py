"""Losses that measure something else than was meant, each with its repair."""

from __future__ import annotations

from typing import Any

import torch
from programs import digits, fit, table, wave  # type: ignore[import-not-found]
from torch import Tensor, nn


def _fit(
    hook: Any, seed: int, steps: int, last: list[nn.Module], loss_fn: Any, *, momentum: float = 0.9
) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10), *last)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=momentum)
    fit(hook, model, optimizer, loss_fn, digits(), steps=steps, seed=seed)


def nll_on_probabilities(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """NLLLoss behind a softmax, not its logarithm: the loss is negative. Repair: LogSoftmax."""
    last = nn.Softmax(1) if variant == "faulty" else nn.LogSoftmax(1)
    _fit(hook, seed, steps, [last], nn.NLLLoss())


def nll_on_scores(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """NLLLoss on bare scores falls without end. Repair: LogSoftmax."""
    _fit(hook, seed, steps, [] if variant == "faulty" else [nn.LogSoftmax(1)], nn.NLLLoss())


def softmax_twice(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A softmax layer in front of CrossEntropyLoss, under Adam. Repair: scores."""
    last: list[nn.Module] = [nn.Softmax(dim=1)] if variant == "faulty" else []
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10), *last,
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def softmax_over_batch(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A log-softmax over the batch, not over the classes. Repair: dim 1."""
    _fit(hook, seed, steps, [nn.LogSoftmax(0 if variant == "faulty" else 1)], nn.NLLLoss())


def softmax_of_one(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A softmax over a single output is 1 whatever happens. Repair: a sigmoid."""
    last = nn.Softmax(1) if variant == "faulty" else nn.Sigmoid()
    x, y, xv, yv = table("breast_cancer")
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1), last)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x, y.float()[:, None], xv, yv.float()[:, None])
    fit(hook, model, optimizer, nn.BCELoss(), data, steps=steps, size=32, seed=seed)


def sigmoid_twice(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A sigmoid in front of BCEWithLogitsLoss: the loss stays above 0.31. Repair: scores."""
    last: list[nn.Module] = [nn.Sigmoid()] if variant == "faulty" else []
    x, y, xv, yv = table("breast_cancer")
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1), *last)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x, y.float()[:, None], xv, yv.float()[:, None])
    fit(hook, model, optimizer, nn.BCEWithLogitsLoss(), data, steps=steps, size=32, seed=seed)


def broadcast(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Predictions (N,) against targets (N, 1) under SmoothL1: all pairs. Repair: equal shapes."""
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    x, y, xv, yv = wave()
    data = (x, y, xv, yv) if variant == "faulty" else (x, y[:, 0], xv, yv[:, 0])
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.SmoothL1Loss()
    fit(hook, model, optimizer, loss_fn, data, steps=steps, seed=seed)


def squared_class_number(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Ten classes as one number under MSELoss with a sigmoid. Repair: cross entropy."""
    if variant != "faulty":
        _fit(hook, seed, steps, [], nn.CrossEntropyLoss())
        return
    x, y, xv, yv = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = (x, y.float()[:, None], xv, yv.float()[:, None])
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, seed=seed)


def ascent(hook: Any, variant: str, seed: int, steps: int = 200) -> None:
    """The sign of a likelihood written by hand is wrong: the net unlearns. Repair: a minus."""
    sign = 1.0 if variant == "faulty" else -1.0

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        return sign * out.log_softmax(1).gather(1, target[:, None]).mean()

    _fit(hook, seed, steps, [], loss_fn, momentum=0.0)


def tanh_for_pixels(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """An autoencoder ends in tanh, its targets are pixels of 0 to 16. Repair: a linear end."""
    x, _, xv, _ = digits(raw=True)
    last = nn.Tanh() if variant == "faulty" else nn.Identity()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64), last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    data = (x / 16, x, xv / 16, xv)
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, seed=seed)


def sigmoid_for_negatives(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A sigmoid end for standardised targets: half of them are below 0. Repair: a linear end."""
    last = nn.Sigmoid() if variant == "faulty" else nn.Identity()
    x, y, xv, yv = wave(noise=0.05)
    data = (x, 2 * y - 1, xv, 2 * yv - 1)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), last)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, seed=seed)


def standardised_pixels(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """An autoencoder of standardised images under a cross entropy. Repair: pixels in [0, 1]."""
    bad = variant == "faulty"
    x, _, xv, _ = digits(raw=not bad)
    if not bad:
        x, xv = x / 16, xv / 16
    model = nn.Sequential(
        nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 48), nn.ReLU(),
        nn.Linear(48, 64),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    fit(hook, model, optimizer, nn.BCEWithLogitsLoss(), (x, x, xv, xv), steps=steps, seed=seed)
