"""What is stored of a run: sparse statistics, and detail after an event, against everything.

    python benchmarks/storage.py [--steps 2000] [--models mlp,deep,cnn]

Small networks learn handwritten digits. In the middle the learning rate is a hundredfold for one
step: the hook saves that step by itself, and is asked for the 50 steps after it, as a rule with
``action=capture-more`` asks; of the first three with all weights and gradients as they are. All
bytes that lie in the bucket at the end are counted. *Everything* is weights and gradients of each
step as they are, without a byte around them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import trainwarden
from benchmarks.detection import JOB, observations
from trainwarden.hook import Hook
from trainwarden.hook.uploader import Limits
from trainwarden.model import TRAIN
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.control import DetailRequest

FLOOR, AIM = 0.70, 0.99  # less than everything
LAZY = Limits(control_s=1e6)


@dataclass(frozen=True)
class Stored:
    """What a run left in the bucket.

    Attributes:
        parameters: Of the network.
        steps: Made.
        saved: Of these, whose statistics were saved.
        parts: First word of the keys below the job → bytes.
        everything: Bytes of weights and gradients of all steps.
    """

    parameters: int
    steps: int
    saved: int
    parts: Mapping[str, int]
    everything: int

    @property
    def bytes(self) -> int:
        """All that was stored."""
        return sum(self.parts.values())

    @property
    def less(self) -> float:
        """Share of everything that need not be stored."""
        return 1 - self.bytes / self.everything


def mlp() -> nn.Module:
    """One hidden layer: as small as networks get."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def deep() -> nn.Module:
    """Nine hidden layers."""
    hidden = (layer for _ in range(9) for layer in (nn.Linear(64, 64), nn.ReLU()))
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


def cnn() -> nn.Module:
    """Two convolutions and a wide layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


MODELS: Mapping[str, Callable[[], nn.Module]] = {"mlp": mlp, "deep": deep, "cnn": cnn}


def measure(make: Callable[[], nn.Module], steps: int) -> Stored:
    """Train for so many steps and count what was stored."""
    torch.manual_seed(0)
    digits = load_digits()
    pixels = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    model, store = make(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with trainwarden.watch(
        model, optimizer, job=JOB, max_overhead=float("inf"), _store=store, _limits=LAZY
    ) as hook:
        for step in range(steps):
            rows = torch.randint(len(labels), (32,))
            optimizer.param_groups[0]["lr"] = 5.0 if step == steps // 2 else 0.05
            optimizer.zero_grad()
            functional.cross_entropy(model(pixels[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step == steps // 2:
                _ask(hook)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    raw = sum(p.numel() * p.element_size() for p in model.parameters())
    saved = sum(one.mode is TRAIN for one in observations(store))
    return Stored(parameters, steps, saved, _parts(store), 2 * raw * steps)


def _ask(hook: Hook) -> None:
    """Ask for detail, as the background does when it reads the control document."""
    assert hook._session is not None  # noqa: S101, SLF001 - no second clock in a measurement
    hook._session.detail.ask([DetailRequest("LossSpike-1", tensors=("*.weight",))])  # noqa: SLF001


def _parts(store: MemoryObjects) -> dict[str, int]:
    parts: dict[str, int] = {}
    for key in store.keys(f"jobs/{JOB}/"):
        word = key.split("/")[2]
        parts[word] = parts.get(word, 0) + len(store.get(key, max_bytes=2**40) or b"")
    return parts


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args()
    print(f"{'':6}{'parameters':>11}{'steps':>7}{'saved':>7}{'stored':>12}{'everything':>15}  less")
    for name in arguments.models.split(","):
        found = measure(MODELS[name], arguments.steps)
        print(
            f"{name:6}{found.parameters:>11,}{found.steps:>7,}{found.saved:>7}{found.bytes:>12,}"
            f"{found.everything:>15,}  {found.less:.2%}  {dict(sorted(found.parts.items()))}"
        )
    print(f"floor {FLOOR:.0%}, aim {AIM:.0%}")


if __name__ == "__main__":
    main()
