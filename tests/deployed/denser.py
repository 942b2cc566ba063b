"""A loop whose loss becomes NaN and that goes on until somebody ends it.

Run by ``test_capture_more.py``; after its first steps it was to save none.
"""

from __future__ import annotations

import time

import torch
from torch import nn

import trainwarden
from trainwarden.hook.uploader import Limits

BROKEN = 5


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(8, 4)
    trainwarden.watch(
        model, optimizer, nn.MSELoss(), job="denser", save_interval=10**9, dense_steps=8,
        rules={"ExplodingTensor": {"action": "capture-more"}},
        _limits=Limits(control_s=1.0),
    )  # fmt: skip
    for step in range(10**6):
        optimizer.zero_grad()
        output = model(inputs)
        wanted = inputs[:, :1] * (torch.nan if step >= BROKEN else 1)
        nn.functional.mse_loss(output, wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        time.sleep(0.01)  # as long as a small step takes; the cores are needed elsewhere


if __name__ == "__main__":
    main()
