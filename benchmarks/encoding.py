"""What the wire costs: microseconds a step and bytes a row, on the tables of a real small model.

    python benchmarks/encoding.py

A residual network of 32 to 256 channels is trained for some steps on data it can learn; its
weights, updates, gradients and activations make 194 rows, repeated from other steps to the 300 and
429 rows of larger models. CPU time of one thread, best of some repeats; 10 steps an object.
Needs PyTorch.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from trainwarden.model import FloatArray, Layout, Mode, Observation, TensorInfo
from trainwarden.stats.catalog import WIDTH
from trainwarden.stats.reductions import Tensor, channel_columns, channels, table
from trainwarden.wire.codec import StepsObject, decode, encode
from trainwarden.wire.keys import StepsKey

TARGET_US, TARGET_BYTES, TARGET_DECODE_US = 50.0, 64.0, 1000.0
STEPS, WARM_UP, REPEATS = 10, 30, 15
WIDTHS = (32, 32, 32, 64, 64, 64, 128, 128, 128, 128, 256, 256, 256)
KEY = StepsKey("bench", 0, 0)


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1, self.relu1 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.short: nn.Module = nn.Identity()
        if inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the convolutions make of ``x`` to ``x``."""
        y = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        found: torch.Tensor = self.relu2(y + self.short(x))
        return found


def reduced(
    parameters: list[nn.Parameter], before: list[Any], activations: dict[str, torch.Tensor]
) -> FloatArray:
    """Return the table of one step."""
    tensors = [
        Tensor(p.detach().numpy(), "float32", b) for p, b in zip(parameters, before, strict=True)
    ]
    tensors += [Tensor(p.grad.numpy(), "float32") for p in parameters if p.grad is not None]
    outputs = [activation.numpy() for activation in activations.values()]
    tensors += [Tensor(x, "float32") for x in outputs]
    found = np.empty((len(tensors), WIDTH))
    table(tensors, found)
    for row, x in zip(found[-len(outputs) :], outputs, strict=True):
        channel_columns(row, channels(x, 1))
    return found


def trained(steps: int) -> list[FloatArray]:
    """Train the network and return the table of each step."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    blocks = [Block(a, b) for a, b in pairwise(WIDTHS)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))
    model = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 3, 1, 1), *blocks, *head)
    inputs = torch.randn(256, 3, 16, 16)
    labels = (inputs.flatten(1) @ torch.randn(3 * 256, 10)).argmax(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    activations: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(
                lambda _, __, y, name=name: activations.__setitem__(name, y.detach())
            )
    parameters = list(model.parameters())
    before = [p.detach().numpy().copy() for p in parameters]
    tables = []
    for _ in range(steps):
        batch = torch.randint(0, 256, (32,))
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        tables.append(reduced(parameters, before, activations))
        before = [p.detach().numpy().copy() for p in parameters]
        optimizer.step()
    return tables


def steps_object(tables: list[FloatArray], rows: int) -> StepsObject:
    """Make an object of ``STEPS`` steps with as many rows as asked for."""
    height = len(tables[0])
    layout = Layout(tuple(TensorInfo(f"layer{i}.weight", "weights", (64, 64)) for i in range(rows)))
    found = []
    for step in range(STEPS):
        parts = [tables[WARM_UP - k * STEPS + step] for k in range(-(-rows // height))]
        stats = np.concatenate(parts)[:rows]
        scalars = {"losses": {"loss": 2.3 - step / 100}, "optimizer": {"lr_0": 0.05}}
        found.append(Observation(step, Mode.TRAIN, step, 1.79e9 + step, layout, stats, scalars))
    return StepsObject(KEY.job, KEY.worker, KEY.seq, "run", tuple(found))


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU microseconds a step that one call takes, best of some."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best * 1e6 / STEPS


def plain(obj: StepsObject) -> bytes:
    """Compress whole numbers, for comparison: [column, row, step], zlib level 1."""
    stacked = np.stack([obs.stats for obs in obj.observations], axis=-1).transpose(1, 0, 2)
    return zlib.compress(np.ascontiguousarray(stacked).tobytes(), 1)


def measured(name: str, rows: int, work: Callable[[], object], body: bytes, goal: bool) -> None:  # noqa: FBT001 - of a table
    """Print one line of the table."""
    target = f"<= {TARGET_US:.0f} µs, <= {TARGET_BYTES:.0f} bytes" if goal else ""
    print(f"{name:24} {rows:5} {cpu(work):9.1f} {len(body) / rows / STEPS:10.1f}   {target}")


def main() -> int:
    """Print the table."""
    tables = trained(WARM_UP + STEPS + 1)
    print(f"{'':24} {'rows':>5} {'µs/step':>9} {'bytes/row':>10}   target")
    for rows in (len(tables[0]), 300, 429):
        obj = steps_object(tables, rows)
        measured("encode", rows, partial(encode, obj), encode(obj), rows == 300)
        measured("(zlib of whole numbers)", rows, partial(plain, obj), plain(obj), False)
        layout = obj.observations[0].layout
        took = cpu(partial(decode, encode(obj), layout, key=KEY))
        goal = f"<= {TARGET_DECODE_US:.0f} µs" if rows == 429 else ""
        print(f"{'decode':24} {rows:5} {took:9.1f} {'':10}   {goal}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
