"""What the programs of the detection benchmark share: data and the loop most scripts have."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Data = tuple[Tensor, ...]


def call(module: str, seed: int, *args: Any, **options: Any) -> None:
    """Seed every generator, then call ``module:function``."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - programs use the global generator
    torch.manual_seed(seed)
    name, _, function = module.partition(":")
    getattr(importlib.import_module(name), function)(*args, seed=seed, **options)


def digits(*, image: bool = False, raw: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """scikit-learn's 8x8 digits, standardised: 1,200 rows for training, 597 for validation.

    ``raw`` leaves the pixels as they are, 0 to 16.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = found.data if raw else (found.data / 16.0 - 0.305) / 0.376
    x, y = torch.tensor(pixels, dtype=torch.float32), torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    x = x.view(-1, 1, 8, 8) if image else x
    return x[:1200], y[:1200], x[1200:], y[1200:]


def table(name: str, *, standardised: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A table that scikit-learn ships: ``breast_cancer``, ``wine``, ``diabetes``; 70 % training."""
    from sklearn import datasets

    options = {"scaled": False} if name == "diabetes" else {}
    found = getattr(datasets, f"load_{name}")(**options)
    x = torch.tensor(found.data, dtype=torch.float32)
    y = torch.tensor(found.target)
    y = y.float()[:, None] if y.is_floating_point() else y
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    x = (x - x.mean(0)) / x.std(0) if standardised else x
    cut = 7 * len(x) // 10
    return x[:cut], y[:cut], x[cut:], y[cut:]


def wave(rows: int = 1000, features: int = 10, noise: float = 0.1) -> Data:
    """A smooth regression: rows of (features,) normal numbers and a (1,) target of order 1."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, features, generator=generator)
    y = torch.sin(x @ torch.randn(features, 1, generator=generator) / features**0.5)
    y = y + noise * torch.randn(rows, 1, generator=generator)
    cut = 4 * rows // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def text(length: int = 40_000) -> tuple[Tensor, int]:
    """Character ids of English prose that ships with Python, and the size of the alphabet."""
    from pydoc_data.topics import topics

    joined = "\n".join(topics[k] for k in sorted(topics))[:length]
    alphabet = sorted(set(joined))
    index = {c: i for i, c in enumerate(alphabet)}
    return torch.tensor([index[c] for c in joined]), len(alphabet)


def windows(ids: Tensor, length: int, size: int, generator: torch.Generator) -> Tensor:
    """(size, length + 1) stretches of ``ids`` from random places."""
    starts = torch.randint(0, len(ids) - length - 1, (size,), generator=generator).tolist()
    return torch.stack([ids[s : s + length + 1] for s in starts])


def batches(
    rows: int, size: int, steps: int, seed: int, *, shuffle: bool = True
) -> Iterator[tuple[int, bool, Tensor]]:
    """Yield (step, is the epoch over, row numbers) of minibatches."""
    generator = torch.Generator().manual_seed(seed)
    step = 0
    while step < steps:
        order = torch.randperm(rows, generator=generator) if shuffle else torch.arange(rows)
        starts = range(0, max(1, rows - size + 1), size)
        for k, start in enumerate(starts):
            if step >= steps:
                return
            yield step, k == len(starts) - 1, order[start : start + size]
            step += 1


def validate(
    hook: Any, step: int, model: nn.Module, loss_fn: Any, data: Data, *, mode: bool = True
) -> None:
    """One validation pass; ``mode`` False forgets model.eval()."""
    if mode:
        model.eval()
    with torch.no_grad():
        out = model(data[0])
        loss = loss_fn(out, data[1])
    if mode:
        model.train()
    hook.on_step(step, "eval", loss, data[0], out, data[1])


def fit(
    hook: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Any,
    data: Data,
    *,
    steps: int = 250,
    size: int = 64,
    seed: int = 0,
    schedule: Any = None,
    before_step: Callable[[], Any] = lambda: None,
    start: bool = True,
    shuffle: bool = True,
) -> None:
    """Train as most scripts do, with a validation pass after each epoch."""
    x, y, *validation = data
    if start:
        hook.on_start(model, optimizer, loss_fn)
    model.train()
    for step, over, rows in batches(len(x), size, steps, seed, shuffle=shuffle):
        optimizer.zero_grad()
        out = model(x[rows])
        loss = loss_fn(out, y[rows])
        loss.backward()
        before_step()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        hook.on_step(step, "train", loss, x[rows], out, y[rows])
        if over and validation:
            validate(hook, step, model, loss_fn, tuple(validation))
