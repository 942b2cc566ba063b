"""What watching costs: CPU time of a training step with and without the hook.

    python benchmarks/overhead.py [--rounds 3] [--steps 20] [--models transformer,resnet18]

Everything runs in one process and in turns, so that a busy machine slows all alike. CPU time of the
whole process is compared, the uploading thread included: each turn ends with a flush. Two bare
twins show how much of a difference is noise; what passes inside the hook is measured apart.
Where smdebug is installed (Python 3.11, numpy < 2.3,
protobuf 3.20, setuptools < 80) its five reductions are measured beside ours; where not, shares
measured once are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import trainwarden
from trainwarden.hook import Hook
from trainwarden.hook.uploader import Limits

LAZY = Limits(first_flush_s=1e6, flush_s=1e6, flush_steps=10**6, flush_bytes=2**40, control_s=1e6)
WEIGHTS_AND_GRADIENTS = ("weights", "biases", "gradients", "losses")
# smdebug 1.0.34, five reductions of the same tensors at every step: share of the bare step.
SMDEBUG_SHARE = {"transformer": 2.83, "resnet18": 1.91}


class Block(nn.Module):
    """Two convolutions with a short cut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.act1, self.act2 = nn.ReLU(), nn.ReLU()
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, C, H, W)."""
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        out: torch.Tensor = self.act2(y + self.short(x))
        return out


def resnet18(width: int = 32) -> nn.Module:
    """Return a network of ResNet-18's shape for 32x32 images, 2.8 million parameters."""
    blocks: list[nn.Module] = [
        nn.Conv2d(3, width, 3, 1, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    ]
    inside = width
    for stage in range(4):
        for position in range(2):
            outside = width * 2**stage
            blocks.append(Block(inside, outside, 2 if stage and not position else 1))
            inside = outside
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


class Layer(nn.Module):
    """Attention and a feed-forward part, each with a short cut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sequences (N, T, F)."""
        batch, length, width = x.shape
        mixed = self.mix(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        out: torch.Tensor = x + self.down(self.act(self.up(self.norm2(x))))
        return out


class Transformer(nn.Module):
    """Four layers, one million parameters."""

    def __init__(self, width: int = 128, layers: int = 4, words: int = 1000) -> None:
        super().__init__()
        self.words, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(64, width))
        self.layers = nn.Sequential(*[Layer(width, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Words (N, T) to scores (N T, words)."""
        out: torch.Tensor = self.head(self.norm(self.layers(self.words(x) + self.place)))
        return out.flatten(0, 1)


def data_for(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one batch of 8."""
    torch.manual_seed(1)
    if name == "resnet18":
        return torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    words = torch.randint(0, 1000, (8, 64))
    return words, torch.roll(words, -1, 1).flatten()


class Contender:
    """One model in training, watched or not, and the CPU time it took."""

    def __init__(self, name: str, title: str, watch: Callable[..., Any] | None) -> None:
        torch.manual_seed(0)
        self.title, (self.x, self.y) = title, data_for(name)
        self.model = resnet18() if name == "resnet18" else Transformer()
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.hook = watch(self.model, self.optimizer, self.loss) if watch else None
        self.turns: list[float] = []
        self.inside, self.steps = 0.0, 0
        if isinstance(self.hook, Hook):
            session: Any = self.hook._session  # noqa: SLF001 - its guard is the way in
            session.guarded = partial(self._timed, session.guarded)

    def _timed(self, guarded: Callable[..., Any], *arguments: Any) -> Any:
        begin = time.thread_time()
        result = guarded(*arguments)
        self.inside += time.thread_time() - begin
        return result

    def turn(self, steps: int, *, timed: bool = True) -> None:
        """Train and flush; remember CPU ms a step."""
        begin = time.process_time()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()
        if self.hook is not None:
            self.hook.flush()
        if timed:
            self.steps += steps
            self.turns.append(1e3 * (time.process_time() - begin) / steps)
        else:
            self.inside = 0.0

    @property
    def inside_ms(self) -> float:
        """CPU ms a step inside the hook, in the training thread."""
        return 1e3 * self.inside / self.steps

    @property
    def ms(self) -> float:
        """CPU ms a step over all turns: with long intervals only some turns have a saved step."""
        return statistics.fmean(self.turns)


class _Smdebug:
    """smdebug's hook with its five reductions, with the methods that ``Contender`` calls."""

    def __init__(self, out: str, interval: int, model: nn.Module, loss: nn.Module) -> None:
        smd: Any = importlib.import_module("smdebug.pytorch")
        smdebug: Any = importlib.import_module("smdebug")

        self.hook = smd.Hook(
            out_dir=out,
            include_collections=["weights", "biases", "gradients", "losses"],
            save_config=smdebug.SaveConfig(save_interval=interval),
            reduction_config=smdebug.ReductionConfig(
                reductions=["mean", "std"], abs_reductions=["max", "mean"], norms=["l2"]
            ),
        )
        self.hook.register_module(model)
        self.hook.register_loss(loss)

    def flush(self) -> None:
        """Its own thread writes as it goes."""

    def close(self) -> None:
        """End the trace."""
        self.hook.close()


def contenders(name: str, folder: Path) -> list[Contender]:
    """Return bare twins and every way of watching."""

    def ours(title: str, interval: int, collections: tuple[str, ...] | None = None) -> Contender:
        def watch(model: nn.Module, optimizer: Any, loss: nn.Module) -> Any:
            return trainwarden.watch(
                model,
                optimizer,
                loss,
                job=f"{name}-{title}".replace(" ", "-").replace(",", ""),
                out=folder / "ours",
                save_interval=interval,
                dense_steps=0,
                collections=collections,
                updates=collections is None,
                max_overhead=float("inf"),
                strict=True,
                _limits=LAZY,
            )

        return Contender(name, title, watch)

    found = [
        Contender(name, "bare", None),
        ours("everything, every step", 1),
        ours("weights and gradients, every step", 1, WEIGHTS_AND_GRADIENTS),
        ours("everything, every 10th", 10),
        ours("everything, every 100th", 100),
        ours("installed, not saving", 10**9),
        Contender(name, "bare twin", None),
    ]
    if importlib.util.find_spec("smdebug"):
        for interval in (1, 10):
            out = str(folder / f"smdebug-{name}-{interval}")
            found.append(
                Contender(
                    name,
                    f"smdebug reductions, every {interval}",
                    lambda m, _o, f, i=interval, d=out: _Smdebug(d, i, m, f),
                )
            )
    return found


def compare(name: str, *, rounds: int, steps: int) -> None:
    """Measure one model and print its part of the table."""
    with tempfile.TemporaryDirectory() as folder:
        all_ = contenders(name, Path(folder))
        for one in all_:
            one.turn(3, timed=False)
        for number in range(rounds):
            for one in all_[number % len(all_) :] + all_[: number % len(all_)]:
                one.turn(steps)
        for one in all_:
            if one.hook is not None:
                one.hook.close()
    by_title = {one.title: one for one in all_}
    bare = statistics.fmean([by_title["bare"].ms, by_title["bare twin"].ms])
    reduced = by_title.get("smdebug reductions, every 1")
    smdebug = reduced.ms / bare - 1 if reduced else SMDEBUG_SHARE[name]
    targets = {
        "weights and gradients, every step": f"<= {smdebug / 5:.0%} (smdebug {smdebug:.0%} / 5)",
        "everything, every 10th": "<= 2 %",
        "installed, not saving": "<= 1 %",
    }
    for one in all_:
        share = one.ms / bare - 1
        inside = f"{one.inside_ms:.2f} | {one.inside_ms / bare:.1%}" if one.inside else "|"
        print(
            f"| {name} | {one.title} | {one.ms:.1f} | {share:+.1%} | {inside} |"
            f" {targets.get(one.title, '')} |"
        )


def microseconds_per_tensor(count: int) -> float:
    """Return CPU microseconds of the hook for one tensor of 4,096 elements, among ``count``."""
    model = nn.ParameterList([nn.Parameter(torch.randn(64, 64)) for _ in range(count)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for parameter in model:
        parameter.grad = torch.randn(64, 64)
    with (
        tempfile.TemporaryDirectory() as folder,
        trainwarden.watch(
            model, optimizer, job=f"n{count}", out=folder, save_interval=1, dense_steps=0,
            updates=False, max_overhead=float("inf"), strict=True, _limits=LAZY,
        ),
    ):  # fmt: skip
        hooks = list(optimizer._optimizer_step_pre_hooks.values())  # noqa: SLF001 - ours, timed alone
        after = list(optimizer._optimizer_step_post_hooks.values())  # noqa: SLF001 - same
        times = []
        for _ in range(max(5, 2000 // count)):
            begin = time.thread_time()
            for hook in hooks + after:
                hook(optimizer, (), {})
            times.append(time.thread_time() - begin)
    return 1e6 * statistics.median(times[1:]) / (2 * count)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the chatter of other libraries."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--models", default="transformer,resnet18")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | hook | CPU ms a step | over bare | ms in the hook | share | target |")
    print("|---|---|---|---|---|---|---|")
    with quiet():
        for name in arguments.models.split(","):
            compare(name, rounds=arguments.rounds, steps=arguments.steps)
        few, many = microseconds_per_tensor(10), microseconds_per_tensor(5000)
    print(
        "\n| tensors | CPU us a tensor | against 10 | target |\n|---|---|---|---|"
        f"\n| 10 | {few:.1f} | | |"
    )
    print(f"| 5000 | {many:.1f} | {many / few:.2f} | <= 1.25 |")


if __name__ == "__main__":
    main()
