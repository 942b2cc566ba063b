"""Learning rates and schedules that are wrong, each with its repair."""

from __future__ import annotations

from typing import Any, Literal

import torch
from programs import (  # type: ignore[import-not-found]
    batches,
    digits,
    fit,
    text,
    validate,
    wave,
    windows,
)
from torch import nn
from torch.optim import lr_scheduler
from updates import Decoder  # type: ignore[import-not-found]


def _mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def _cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def adam_at_one(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """Adam at 1.0, a rate for SGD. Repair: 0.002."""
    model = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1.0 if variant == "faulty" else 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def adam_at_a_tenth(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A CNN under Adam at 0.1. Repair: 0.002."""
    model = _cnn()
    optimizer = torch.optim.Adam(model.parameters(), 0.1 if variant == "faulty" else 2e-3)
    loss_fn = nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, digits(image=True), steps=steps, seed=seed)


def sgd_oscillates(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """SGD at the edge of stability: the loss jumps up and down and never settles. Repair: 0.05."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), 3.0 if variant == "faulty" else 0.1)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def adam_too_low(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Adam at 1e-7. Repair: 0.002."""
    model = _mlp()
    optimizer = torch.optim.Adam(model.parameters(), 1e-7 if variant == "faulty" else 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def cnn_too_low(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A CNN under SGD with momentum at 1e-5. Repair: 0.05."""
    model = _cnn()
    rate = 1e-5 if variant == "faulty" else 0.05
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, digits(image=True), steps=steps, seed=seed)


def regression_too_low(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A regression under SGD at 1e-6. Repair: 0.05."""
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6 if variant == "faulty" else 0.05)
    fit(hook, model, optimizer, nn.MSELoss(), wave(), steps=steps, seed=seed)


def no_warm_up(hook: Any, variant: str, seed: int, steps: int = 150) -> None:
    """A transformer with normalisation behind the blocks takes its full rate at once.

    Repair: warm-up, and a rate that fits.
    """
    ids, alphabet = text()
    model, loss_fn = Decoder(alphabet, norm_first=False, depth=3), nn.CrossEntropyLoss()
    bad = variant == "faulty"
    optimizer = torch.optim.Adam(model.parameters(), 3e-2 if bad else 4e-3)
    schedule = lr_scheduler.LinearLR(optimizer, 1.0 if bad else 1e-2, 1.0, 40)
    hook.on_start(model, optimizer, loss_fn)
    order = torch.Generator().manual_seed(seed)
    for step in range(steps):
        window = windows(ids, 16, 16, order)
        x, target = window[:, :-1], window[:, 1:]
        optimizer.zero_grad()
        out = model(x)
        loss = loss_fn(out, target)
        loss.backward()
        optimizer.step()
        schedule.step()
        hook.on_step(step, "train", loss, x, out, target)


def exponential_per_batch(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """ExponentialLR at 0.9 is stepped each batch, not each epoch. Repair: 0.9 ** (1 / 18)."""
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    gamma = 0.9 if variant == "faulty" else 0.9 ** (1 / 18)
    schedule = lr_scheduler.ExponentialLR(optimizer, gamma)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed,
        schedule=schedule)  # fmt: skip


def step_per_batch(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """MultiStepLR with milestones in epochs is stepped each batch. Repair: milestones in steps."""
    model = _cnn()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    epoch = 1 if variant == "faulty" else 18
    schedule = lr_scheduler.MultiStepLR(optimizer, [4 * epoch, 8 * epoch, 12 * epoch], 0.1)
    data, loss_fn = digits(image=True), nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, data, steps=steps, seed=seed, schedule=schedule)


def cosine_per_batch(hook: Any, variant: str, seed: int, steps: int = 360) -> None:
    """CosineAnnealingLR over 10 epochs is stepped each batch: the rate swings all the time.

    Repair: T_max in steps.
    """
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1.5, momentum=0.9)
    if variant != "faulty":
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = lr_scheduler.CosineAnnealingLR(optimizer, 10 if variant == "faulty" else steps)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed,
        schedule=schedule)  # fmt: skip


def schedule_grows(hook: Any, variant: str, seed: int, steps: int = 250) -> None:
    """A decay factor above 1: the rate grows until nothing holds. Repair: below 1."""
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = lr_scheduler.ExponentialLR(optimizer, 1.04 if variant == "faulty" else 0.99)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed,
        schedule=schedule)  # fmt: skip


def cyclic_too_high(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A cyclic rate whose top throws away what was learned each time. Repair: 0.1 at the top."""
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    top = 4.0 if variant == "faulty" else 0.1
    schedule = lr_scheduler.CyclicLR(optimizer, 0.01, top, 20, cycle_momentum=False)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed,
        schedule=schedule)  # fmt: skip


def plateau_upside_down(hook: Any, variant: str, seed: int, steps: int = 360) -> None:
    """ReduceLROnPlateau waits for a loss that rises (mode max): the rate is gone in a few epochs.

    Repair: mode min.
    """
    x, y, *validation = digits()
    model, loss_fn = _mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    mode: Literal["min", "max"] = "max" if variant == "faulty" else "min"
    schedule = lr_scheduler.ReduceLROnPlateau(optimizer, mode, factor=0.1, patience=0)
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation))
            schedule.step(loss_fn(model(validation[0]), validation[1]).item())


def warm_up_without_cap(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A rate of 0.05 x step / 10 goes on rising after its warm-up. Repair: min(1, step / 10)."""
    bad = variant == "faulty"
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    schedule = lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / 10 if bad else min(1.0, (step + 1) / 10)
    )
    data, loss_fn = digits(image=True), nn.CrossEntropyLoss()
    fit(hook, model, optimizer, loss_fn, data, steps=steps, seed=seed, schedule=schedule)
