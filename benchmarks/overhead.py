"""What watching costs: CPU time of a training step with and without the hook.

    python benchmarks/overhead.py [--rounds 3] [--steps 20] [--models transformer,resnet18]

Each way of watching trains in a process of its own; they take turns, so that a busy machine slows
all alike. CPU time of the whole process is compared, the uploading thread included: each turn ends
with a flush. Two bare twins show how much of a difference is noise; the time inside the hook is
measured apart. Where smdebug is installed (Python 3.11, numpy < 2.3, protobuf 3.20,
setuptools < 80) its five reductions, and the same tensors raw, are measured beside ours; where not,
shares measured once are shown.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trainwarden
from trainwarden.hook.uploader import Limits

models: Any = importlib.import_module("overhead_models")  # beside this script
LAZY = Limits(first_flush_s=1e6, flush_s=1e6, flush_steps=10**6, flush_bytes=2**40, control_s=1e6)
NEVER = 10**9
WEIGHTS_AND_GRADIENTS = ("weights", "biases", "gradients", "losses")
# smdebug 1.0.34, five reductions of the same tensors at every step: share of the bare step.
SMDEBUG_SHARE = {"transformer": 2.83, "resnet18": 1.91}
BARE, TWIN, SMDEBUG = "bare", "bare twin", "smdebug reductions, every step"
_SAMPLED = {"save_interval": 1, "exact_interval": NEVER}


@dataclass(frozen=True)
class Way:
    """One way of watching: the options of ``watch``, smdebug's interval, or nothing."""

    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    smdebug: str = ""


def ways() -> list[Way]:
    """Return all of them."""
    both = {"collections": WEIGHTS_AND_GRADIENTS, "updates": False}
    found = [
        Way(BARE),
        Way("everything, every step", {"save_interval": 1}),
        Way("weights and gradients, every step", {"save_interval": 1, **both}),
        Way("weights and gradients, sampled, every step", {**_SAMPLED, **both}),
        Way("activations, sampled, every step", {**_SAMPLED, "collections": ("activations",)}),
        Way("everything, sampled, every step", _SAMPLED),
        Way("everything, every 10th", {"save_interval": 10}),
        Way("everything, every 100th", {"save_interval": 100}),
        Way("installed, not saving", {"save_interval": NEVER}),
        Way(TWIN),
    ]
    if importlib.util.find_spec("smdebug"):
        found += [Way(SMDEBUG, smdebug="reductions"), Way("smdebug raw, every step", smdebug="raw")]
    return found


class Training:
    """One model in training, watched or not."""

    def __init__(self, name: str, way: Way, folder: str) -> None:
        torch.set_num_threads(1)
        logging.disable(logging.WARNING)
        (self.x, self.y), self.model = models.data_for(name), models.model_for(name)
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inside = 0.0
        self.flush: Callable[[], object] = lambda: None
        if way.smdebug:
            _smdebug(folder, way.smdebug, self.model, self.loss)
        elif way.options:
            hook = trainwarden.watch(
                self.model, self.optimizer, self.loss, job="overhead", out=folder, dense_steps=0,
                max_overhead=float("inf"), strict=True, _limits=LAZY, **way.options,
            )  # fmt: skip
            session: Any = hook._session  # noqa: SLF001 - its guard is the way in
            session.guarded = partial(self._timed, session.guarded)
            self.flush = hook.flush

    def _timed(self, guarded: Callable[..., Any], *arguments: Any) -> Any:
        begin = time.perf_counter()  # asking for CPU time costs more than what is measured here
        result = guarded(*arguments)
        self.inside += time.perf_counter() - begin
        return result

    def turn(self, steps: int) -> tuple[float, float]:
        """Train and flush; return CPU ms a step, and ms of it inside the hook."""
        self.inside, begin = 0.0, time.process_time()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.loss(self.model(self.x), self.y).backward()
            self.optimizer.step()
        self.flush()
        return 1e3 * (time.process_time() - begin) / steps, 1e3 * self.inside / steps


def serve(pipe: Connection, name: str, way: Way, folder: str) -> None:
    """Train in a process of its own, as many steps as it is told to."""
    training = Training(name, way, folder)
    training.turn(3)
    pipe.send(None)
    while steps := pipe.recv():
        pipe.send(training.turn(steps))


class Contender:
    """A process, and what its turns took."""

    def __init__(self, name: str, way: Way, folder: Path) -> None:
        self.way = way
        self.turns: list[float] = []
        self.inside: list[float] = []
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        place = str(folder / way.title.replace(" ", "-"))
        self._process = context.Process(target=serve, args=(theirs, name, way, place), daemon=True)
        self._process.start()
        self._pipe.recv()

    def turn(self, steps: int) -> None:
        """Let it train."""
        self._pipe.send(steps)
        took, inside = self._pipe.recv()
        self.turns.append(took)
        self.inside.append(inside)

    def end(self) -> None:
        """Let the process end."""
        self._pipe.send(0)
        self._process.join()

    @property
    def ms(self) -> float:
        """CPU ms a step over all turns: with long intervals only some turns have a saved step."""
        return statistics.fmean(self.turns)


def _smdebug(out: str, what: str, model: nn.Module, loss: nn.Module) -> None:
    """Have smdebug save weights, gradients and losses at every step."""
    smd: Any = importlib.import_module("smdebug.pytorch")
    smdebug: Any = importlib.import_module("smdebug")
    reductions = smdebug.ReductionConfig(
        reductions=["mean", "std"], abs_reductions=["max", "mean"], norms=["l2"]
    )
    hook = smd.Hook(
        out_dir=out,
        include_collections=list(WEIGHTS_AND_GRADIENTS),
        save_config=smdebug.SaveConfig(save_interval=1),
        reduction_config=reductions if what == "reductions" else None,
    )
    hook.register_module(model)
    hook.register_loss(loss)


def compare(name: str, *, rounds: int, steps: int) -> None:
    """Measure one model and print its part of the table."""
    with tempfile.TemporaryDirectory() as folder:
        all_ = [Contender(name, way, Path(folder)) for way in ways()]
        for number in range(rounds):
            first = number % len(all_)
            for one in all_[first:] + all_[:first]:
                one.turn(steps)
        for one in all_:
            one.end()
    by_title = {one.way.title: one for one in all_}
    bare = statistics.fmean([by_title[BARE].ms, by_title[TWIN].ms])
    smdebug = by_title[SMDEBUG].ms / bare - 1 if SMDEBUG in by_title else SMDEBUG_SHARE[name]
    targets = {
        "weights and gradients, every step": f"<= {smdebug / 5:.0%} (smdebug {smdebug:.0%} / 5)",
        "weights and gradients, sampled, every step": f"<= {smdebug / 20:.0%} (smdebug / 20)",
        "activations, sampled, every step": "<= 3 %" if name == "resnet18" else "",
        "everything, every 10th": "<= 2 %",
        "installed, not saving": "<= 1 %",
    }
    for one in all_:
        share, inside = one.ms / bare - 1, statistics.fmean(one.inside)
        told = f"{inside:.2f} | {inside / bare:.1%}" if inside else "|"
        print(
            f"| {name} | {one.way.title} | {one.ms:.1f} | {share:+.1%} | {told} |"
            f" {targets.get(one.way.title, '')} |"
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
    print("| model | hook | CPU ms a step | over bare | ms inside the hook | share | target |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.models.split(","):
        compare(name, rounds=arguments.rounds, steps=arguments.steps)
    logging.disable(logging.WARNING)
    few, many = microseconds_per_tensor(10), microseconds_per_tensor(5000)
    print(
        "\n| tensors | CPU us a tensor | against 10 | target |\n|---|---|---|---|"
        f"\n| 10 | {few:.1f} | | |"
    )
    print(f"| 5000 | {many:.1f} | {many / few:.2f} | <= 1.25 |")


if __name__ == "__main__":
    main()
