"""Data parallel training whose ranks the environment does not know: one process writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

import trainwarden
from tests.training.loops import digits, mlp, train
from tests.unit.hook.recording import read
from trainwarden.hook import Hook
from trainwarden.pipeline import check
from trainwarden.store.folder import FolderObjects

LOSS = nn.CrossEntropyLoss()
STEPS = 12


def _watch(model: nn.Module, optimizer: torch.optim.Optimizer, out: str) -> Hook:
    return trainwarden.watch(
        model, optimizer, LOSS, job="job", out=out, save_interval=1, strict=True
    )


def _worker(rank: int, folder: str, order: str) -> None:
    """Train as PyTorch's tutorial does; before or after there is a group it watches."""
    torch.set_num_threads(1)
    out = f"{folder}/out"
    model: nn.Module = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = _watch(model, optimizer, out) if order == "before" else None
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2
    )
    parallel = nn.parallel.DistributedDataParallel(model)
    if hook is None:
        hook = _watch(parallel, optimizer, out)
    losses = train(parallel, optimizer, LOSS, digits(), steps=STEPS)
    assert len(losses) == STEPS
    hook.record("late", 1.0)
    assert hook.active is (rank == 0)
    hook.close()
    os._exit(0)  # everything is stored; gloo's own teardown may hang on a busy machine


@pytest.mark.parametrize("order", ["before", "after"])
def test_of_spawned_processes_only_the_first_writes_and_every_step_is_judged(
    order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # the tests' own modules
    spawn(_worker, (str(tmp_path), order), nprocs=2)  # type: ignore[no-untyped-call]
    store = FolderObjects(tmp_path / "out")
    found = read(store)
    assert found.steps == [*range(STEPS)]
    assert found.manifest.world_size == (1 if order == "before" else 2)
    assert len({key.split("/")[1] for key in store.keys("")}) == 1
    progress = check(store).progress
    assert (progress["steps"], progress["rejected"]) == (STEPS, 0)
