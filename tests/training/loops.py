"""Small real models on scikit-learn's data, and a loop a user would write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import nn

import trainwarden
from tests.unit.hook.recording import Recording, read
from trainwarden.hook import Hook
from trainwarden.store.memory import MemoryObjects


def digits(n: int = 512, *, image: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Handwritten digits: (n, 64) or (n, 1, 8, 8) float32 in 0..1, labels (n,) int64."""
    data = load_digits()
    x = torch.tensor(data.data[:n] / 16, dtype=torch.float32)
    return (x.view(-1, 1, 8, 8) if image else x), torch.tensor(data.target[:n])


def diabetes() -> tuple[torch.Tensor, torch.Tensor]:
    """Diabetes: (442, 10) and standardised targets (442, 1) float32."""
    data = load_diabetes()
    y = torch.tensor(data.target, dtype=torch.float32)
    return torch.tensor(data.data, dtype=torch.float32), ((y - y.mean()) / y.std()).view(-1, 1)


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn(seed: int = 0, *, inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=inplace),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(inplace=inplace),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def weight(model: nn.Sequential, position: int) -> nn.Parameter:
    found = model[position].weight
    assert isinstance(found, nn.Parameter)
    return found


def bias(model: nn.Sequential, position: int) -> nn.Parameter:
    found = model[position].bias
    assert isinstance(found, nn.Parameter)
    return found


def train(
    model: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[..., Any],
    data: tuple[torch.Tensor, torch.Tensor],
    *,
    steps: int = 12,
    batch: int = 64,
) -> list[float]:
    """Train and return the losses."""
    x, y = data
    losses = []
    if isinstance(model, nn.Module):
        model.train()
    for step in range(steps):
        at = torch.arange(step * batch, (step + 1) * batch) % len(x)
        optimizer.zero_grad()
        loss = loss_fn(model(x[at]), y[at])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def evaluate(
    model: Callable[..., Any],
    loss_fn: Callable[..., Any],
    data: tuple[torch.Tensor, torch.Tensor],
    *,
    batch: int = 100,
) -> float:
    """Return the mean loss over all samples; the last batch is smaller."""
    x, y = data
    total = 0.0
    if isinstance(model, nn.Module):
        model.eval()
    with torch.no_grad():
        for begin in range(0, len(x), batch):
            part = slice(begin, begin + batch)
            total += float(loss_fn(model(x[part]), y[part])) * len(x[part])
    return total / len(x)


def watched(store: MemoryObjects, model: Any, *args: Any, **options: Any) -> Hook:
    """Watch into memory, strictly: what goes wrong in the hook fails the test."""
    given: dict[str, Any] = {"job": "job", "strict": True, **options}
    return trainwarden.watch(model, *args, _store=store, **given)


def record(
    model: nn.Module | dict[str, nn.Module],
    loop: Callable[[Hook], object],
    *args: Any,
    **options: Any,
) -> Recording:
    """Run ``loop`` under a hook and return what was recorded."""
    store = MemoryObjects()
    with watched(store, model, *args, **options) as hook:
        loop(hook)
    return read(store)
