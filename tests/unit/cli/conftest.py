"""Two real runs, one that learns nothing and one that learns, recorded to a folder once."""

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import trainwarden


def record(out: Path, job: str, *, healthy: bool, steps: int) -> None:
    torch.manual_seed(0)
    digits = load_digits()
    inputs = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    layers: list[nn.Module] = []
    for _ in range(8):
        linear = nn.Linear(64, 64)
        if healthy:
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        layers += [linear, nn.ReLU() if healthy else nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    with trainwarden.watch(model, optimizer, loss_fn, job=job, out=str(out)):
        for _ in range(steps):
            batch = torch.randint(0, len(inputs), (64,))
            optimizer.zero_grad()
            loss_fn(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    record(out, "sick", healthy=False, steps=120)
    record(out, "healthy", healthy=True, steps=120)
    return out
