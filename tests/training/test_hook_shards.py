"""Models that several processes hold in parts: each tells of its own, and the whole is judged."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.multiprocessing.spawn import spawn

import trainwarden
from tests.training.loops import digits, mlp, record, train
from tests.unit.hook.recording import Recording, read
from trainwarden.merge import merge
from trainwarden.model import Collection
from trainwarden.pipeline import check
from trainwarden.store.folder import FolderObjects

LOSS = nn.CrossEntropyLoss()
STEPS = 6
PARTS = (Collection.WEIGHTS, Collection.BIASES, Collection.GRADIENTS)


def _fully_sharded(model: nn.Sequential) -> nn.Module:
    fully_shard(model[0])
    fully_shard(model)
    return model


def _flat(model: nn.Sequential) -> nn.Module:
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))


WAYS: dict[str, Callable[[nn.Sequential], nn.Module]] = {"new": _fully_sharded, "old": _flat}

ALONE: dict[str, Callable[[nn.Sequential], nn.Module]] = {
    "alone": _fully_sharded,
    "copies": nn.parallel.DistributedDataParallel,
}  # only the first process watches


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _half(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This process's samples: every other one, so that a step of both is one of the twin."""
    x, y = digits()
    return x[rank::2], y[rank::2]


def _worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2
    )
    for way, shard in {**WAYS, **ALONE}.items():
        model = shard(mlp())
        optimizer = _optimizer(model)
        if way in ALONE and rank:
            train(model, optimizer, LOSS, _half(rank), steps=STEPS, batch=32)
            continue
        # The names that processes make up themselves differ, and the leader's counts.
        job = way if rank == 0 else None
        with trainwarden.watch(model, optimizer, LOSS, job=job, out=f"{folder}/out", strict=True):
            train(model, optimizer, LOSS, _half(rank), steps=STEPS, batch=32)
    os._exit(0)  # everything is stored; gloo's own teardown may hang on a busy machine


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> FolderObjects:
    """Both ways to shard in two processes, and two in which the second one does not watch."""
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("RANK", "WORLD_SIZE"):
            environment.delenv(name, raising=False)
        environment.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        spawn(_worker, (str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return FolderObjects(folder / "out")


@pytest.fixture(scope="module")
def twin() -> Recording:
    """The same training in one process, with the whole model."""
    model = mlp()
    optimizer = _optimizer(model)
    return record(
        model,
        lambda _: train(model, optimizer, LOSS, digits(), steps=STEPS, batch=64),
        optimizer,
        LOSS,
    )


def _merged(store: FolderObjects, job: str) -> Recording:
    """What all workers of a job recorded, as rules see it."""
    first = read(store, job)
    by_worker = [read(store, job, worker).observations for worker in first.manifest.workers]
    together = tuple(merge(step) for step in zip(*by_worker, strict=True))
    return replace(first, objects=[replace(first.objects[0], observations=together)])


@pytest.mark.parametrize("way", WAYS)
def test_parts_add_up_to_the_whole_model(way: str, runs: FolderObjects, twin: Recording) -> None:
    recorded = _merged(runs, way)
    assert recorded.manifest.workers == (0, 1)
    assert recorded.steps == [*range(STEPS)]
    known = {t.name: t for t in recorded.manifest.layout.tensors if t.collection in PARTS}
    whole = {t.name: t for t in twin.manifest.layout.tensors if t.collection in PARTS}
    assert known == whole
    for name in whole:
        exact = ("n", "n_nan", "n_zero", "u_n", "flags")
        for statistic in (*exact, "mean", "std", "l2", "min", "max", "update_l2", "update_max"):
            np.testing.assert_allclose(
                recorded.values(name, statistic),
                twin.values(name, statistic),
                rtol=0 if statistic in exact else 2e-4,
                atol=0 if statistic in exact else 1e-6,
                err_msg=f"{statistic} of {name}",
            )


def test_units_of_a_matrix_are_told_apart_only_where_parts_hold_whole_ones(
    runs: FolderObjects, twin: Recording
) -> None:
    for statistic in ("row_norm_min", "row_norm_max"):
        expected = twin.values("0.weight", statistic)[0]
        assert _merged(runs, "new").values("0.weight", statistic)[0] == pytest.approx(expected)
        assert np.isnan(_merged(runs, "old").values("0.weight", statistic)[0])


@pytest.mark.parametrize("way", WAYS)
def test_the_second_process_tells_its_parts_and_nothing_else(way: str, runs: FolderObjects) -> None:
    found = read(runs, way, worker=1)
    assert found.end is not None
    assert found.end.reason == "finished"
    assert found.steps == [*range(STEPS)]
    assert not any(obs.scalars or obs.labels or obs.channels for obs in found.observations)
    rows = {found.manifest.layout.tensors[row].collection for row in _captured(found)}
    assert rows == {*PARTS}


def _captured(recording: Recording) -> list[int]:
    counts: Any = recording.observations[0].stats[:, 0]
    return [int(row) for row in np.flatnonzero(~np.isnan(counts))]


@pytest.mark.parametrize("way", [*WAYS, *ALONE])
def test_every_step_is_judged_and_nothing_is_refused(way: str, runs: FolderObjects) -> None:
    progress = check(runs, way).progress
    assert (progress["steps"], progress["rejected"]) == (STEPS, 0)


def test_where_a_process_does_not_watch_parts_are_left_out_and_nothing_waits(
    runs: FolderObjects,
) -> None:
    recorded = _merged(runs, "alone")
    assert recorded.manifest.workers == (0,)
    assert np.isnan(recorded.values("0.weight", "n")).all()
    assert not np.isnan(recorded.values("activation/1", "n")).any()
    assert len(recorded.scalars("loss")) == STEPS


def test_where_a_process_does_not_watch_its_copy_nothing_is_missing(
    runs: FolderObjects, twin: Recording
) -> None:
    recorded = read(runs, "copies")
    assert recorded.manifest.workers == (0,)
    for statistic in ("l2", "update_l2"):
        np.testing.assert_allclose(
            recorded.values("0.weight", statistic),
            twin.values("0.weight", statistic),
            rtol=1e-4,
        )
