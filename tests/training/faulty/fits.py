"""Too much and too little freedom, and modules in the wrong mode; each with its repair."""

from __future__ import annotations

from typing import Any

import torch
from programs import (  # type: ignore[import-not-found]
    batches,
    digits,
    fit,
    table,
    validate,
    wave,
)
from torch import Tensor, nn


def _mlp(width: int = 64, drop: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(drop), nn.Linear(width, 10))


def few_rows(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Sixty rows of noise and signal for 8,000 weights. Repair: all rows, fewer steps."""
    x, y, xv, yv = wave(noise=0.3)
    model = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                          nn.Linear(64, 1))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    data = (x[:60], y[:60], xv, yv) if variant == "faulty" else (x, y, xv, yv)
    steps, size = (steps, 20) if variant == "faulty" else (steps // 4, 64)
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, size=size, seed=seed)


def few_images(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A hundred noisy images, a quarter mislabelled, learned by heart. Repair: all images."""
    x, y, xv, yv = digits()
    if variant == "faulty":
        order = torch.Generator().manual_seed(4)
        x, y = x[:100] + torch.randn(100, 64, generator=order), y[:100].clone()
        y[:25] = torch.randint(0, 10, (25,), generator=order)
    model = _mlp(256)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    steps = steps if variant == "faulty" else steps // 2
    data = (x, y, xv, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=steps, size=50, seed=seed)


def far_too_long(hook: Any, variant: str, seed: int, steps: int = 900) -> None:
    """Training goes on long after the validation loss was at its least. Repair: stopped there."""
    x, y, xv, yv = digits()
    order = torch.Generator().manual_seed(4)
    x, xv = x + 1.2 * torch.randn(x.shape, generator=order), xv + 1.2 * torch.randn(xv.shape)
    model = _mlp(128)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    steps = steps if variant == "faulty" else 72
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), (x, y, xv, yv), steps=steps, seed=seed)


def table_too_long(hook: Any, variant: str, seed: int, steps: int = 1000) -> None:
    """A table of 309 rows, trained for a hundred epochs too many. Repair: stopped after a few."""
    x, y, xv, yv = table("diabetes")
    mean, std = y.mean(), y.std()
    data = (x, (y - mean) / std, xv, (yv - mean) / std)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    steps = steps if variant == "faulty" else 60
    fit(hook, model, optimizer, nn.MSELoss(), data, steps=steps, size=32, seed=seed)


def dropout_everywhere(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Dropout of 0.95 where 0.05 was meant to be dropped. Repair: 0.05."""
    drop = 0.95 if variant == "faulty" else 0.05
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Dropout(drop), nn.Linear(64, 64), nn.ReLU(),
        nn.Dropout(drop), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def weight_decay(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """SGD with a weight decay of 0.3: weights shrink faster than they learn. Repair: 5e-4."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                          nn.Linear(64, 10))  # fmt: skip
    decay = 0.3 if variant == "faulty" else 5e-4
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=decay)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def adamw_decay(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """AdamW with a weight decay of 10. Repair: 0.01."""
    model = _mlp()
    decay = 10.0 if variant == "faulty" else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3, weight_decay=decay)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), digits(), steps=steps, seed=seed)


def penalty_in_loss(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """The sum of squared weights is added to the loss with a factor of 1. Repair: 1e-4."""
    x, y, *validation = digits()
    model, cross_entropy = _mlp(), nn.CrossEntropyLoss()
    factor = 1.0 if variant == "faulty" else 1e-4
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def loss_fn(out: Tensor, target: Tensor) -> Tensor:
        penalty = sum((p.square().sum() for p in model.parameters()), torch.zeros(()))
        loss: Tensor = cross_entropy(out, target) + factor * penalty
        return loss

    fit(hook, model, optimizer, loss_fn, (x, y, *validation), steps=steps, seed=seed)


def _normed(drop: float = 0.0, momentum: float = 0.1) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(), nn.Dropout(drop),
        nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(), nn.Dropout(drop),
        nn.Linear(64, 10),
    )  # fmt: skip


def _loop(hook: Any, model: nn.Module, steps: int, seed: int, *, before: bool, after: bool) -> None:
    """Train; not ``before`` forgets eval() before validation, not ``after`` train() after it."""
    x, y, *validation = digits()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    hook.on_start(model, optimizer, loss_fn)
    for step, over, rows in batches(len(x), 64, steps, seed):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        optimizer.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over:
            validate(hook, step, model, loss_fn, tuple(validation), mode=before)
            if not after:
                model.eval()


def train_forgotten(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """No train() after the first validation: dropout is off from then on. Repair: train()."""
    _loop(hook, _mlp(256, 0.5), steps, seed, before=True, after=variant != "faulty")


def eval_from_start(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """A CNN with batch normalisation is trained in eval mode from the start. Repair: train()."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip
    model.train(variant != "faulty")
    _loop(hook, model, steps, seed, before=True, after=variant != "faulty")


def eval_forgotten(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """No eval() before validation: dropout and batch statistics are on in it. Repair: eval()."""
    _loop(hook, _normed(0.4), steps, seed, before=variant != "faulty", after=True)


def statistics_stand_still(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Batch normalisation with momentum 0.0001 in place of 0.1: running statistics hardly move.

    Another framework counts the other way round: 0.9999 was meant. Repair: 0.1.
    """
    momentum = 1e-4 if variant == "faulty" else 0.1
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(),
                          nn.Linear(64, 64), nn.BatchNorm1d(64, momentum=momentum), nn.ReLU(),
                          nn.Linear(64, 10))  # fmt: skip
    with torch.no_grad():
        model[0].weight.mul_(20)  # type: ignore[operator]
    _loop(hook, model, steps, seed, before=True, after=True)


def last_batch_only(hook: Any, variant: str, seed: int, steps: int = 300) -> None:
    """Batch normalisation with momentum 1.0 knows the last batch alone, of 4 rows. Repair: 0.1."""
    x, y, xv, yv = digits()
    model = _normed(0.0, 1.0 if variant == "faulty" else 0.1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    data = (x, y, xv, yv)
    fit(hook, model, optimizer, nn.CrossEntropyLoss(), data, steps=2 * steps, size=4, seed=seed)
