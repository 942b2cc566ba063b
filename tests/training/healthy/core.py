"""The neutral interface of the detection benchmark, and small data for healthy programs."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))


def run_program(module: str, hook: Any, variant: str, seed: int = 0) -> None:
    """Run ``module:function`` under ``hook``; there is only one variant, ``healthy``."""
    assert variant == "healthy"
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - programs use the global generator
    torch.manual_seed(seed)
    name, _, function = module.partition(":")
    try:
        getattr(importlib.import_module(name), function)(hook, seed)
    finally:
        hook.on_end()


def digits(*, image: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """scikit-learn's 8x8 digits, standardised: 1,200 rows for training, 597 for validation."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor((found.data / 16.0 - 0.305) / 0.376, dtype=torch.float32)
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    x = x.view(-1, 1, 8, 8) if image else x
    return x[:1200], y[:1200], x[1200:], y[1200:]


def text(length: int = 40_000) -> tuple[Tensor, int]:
    """Character ids of English prose that ships with Python, and the size of the alphabet."""
    from pydoc_data.topics import topics

    joined = "\n".join(topics[k] for k in sorted(topics))[:length]
    alphabet = sorted(set(joined))
    index = {c: i for i, c in enumerate(alphabet)}
    return torch.tensor([index[c] for c in joined]), len(alphabet)


def batches(rows: int, size: int, steps: int, seed: int) -> Iterator[tuple[int, bool, Tensor]]:
    """Yield (step, is the epoch over, row numbers) of shuffled minibatches."""
    generator = torch.Generator().manual_seed(seed)
    step = 0
    while step < steps:
        order = torch.randperm(rows, generator=generator)
        starts = range(0, max(1, rows - size + 1), size)
        for k, start in enumerate(starts):
            if step >= steps:
                return
            yield step, k == len(starts) - 1, order[start : start + size]
            step += 1


def fit(
    hook: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Any,
    data: tuple[Tensor, ...],
    *,
    steps: int = 250,
    size: int = 64,
    seed: int = 0,
    schedule: Any = None,
    before_step: Callable[[], Any] = lambda: None,
    start: bool = True,
) -> None:
    """Train as most scripts do, with a validation pass after each epoch."""
    x, y, *validation = data
    if start:
        hook.on_start(model, optimizer, loss_fn)
    model.train()
    for step, over, rows in batches(len(x), size, steps, seed):
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
            model.eval()
            with torch.no_grad():
                out = model(validation[0])
                loss = loss_fn(out, validation[1])
            model.train()
            hook.on_step(step, "eval", loss, validation[0], out, validation[1])
