"""Whatever goes wrong in or around the hook, training goes on."""

from __future__ import annotations

import copy
import errno
import logging
import os
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trainwarden
from tests.training.loops import digits, evaluate, mlp, train, watched
from tests.unit.hook.recording import LAZY, QUICK, Recording, read
from trainwarden.errors import BadInputError, ConfigError
from trainwarden.hook import Hook
from trainwarden.stats.reductions import table
from trainwarden.store import files
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects

LOSS = nn.CrossEntropyLoss()


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the user is told; grows while the test runs."""
    texts = list[str]()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    logger, listener = logging.getLogger("trainwarden"), Listener()
    logger.addHandler(listener)
    yield texts
    logger.removeHandler(listener)


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def bare(steps: int) -> list[float]:
    model = mlp()
    return train(model, sgd(model), LOSS, digits(), steps=steps)


def break_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the statistics fail after so many calls."""
    original, left = table, [calls]

    def broken(*args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError("a bug of ours")
        original(*args)

    monkeypatch.setattr("trainwarden.hook.draft.table", broken)


def test_a_bug_in_the_hook_ends_the_watch_and_not_the_training(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    break_after(3, monkeypatch)
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    with watched(store, model, optimizer, LOSS, strict=False) as hook:
        losses = train(model, optimizer, LOSS, digits(), steps=8)
        assert not hook.active
    assert losses == bare(8)
    assert len(said) == 1
    assert "a bug of ours" in said[0]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    found = read(store)
    assert found.dropped == {"errors": 1}
    assert found.end is not None
    assert found.end.reason == "finished"


def test_strict_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    break_after(0, monkeypatch)
    model = mlp()
    optimizer = sgd(model)
    with (
        pytest.raises(ZeroDivisionError),
        watched(MemoryObjects(), model, optimizer, LOSS),
    ):
        train(model, optimizer, LOSS, digits(), steps=1)


def test_an_exception_of_the_users_ends_the_job_as_failed() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)

    def fail() -> None:
        with watched(store, model, optimizer, LOSS):
            train(model, optimizer, LOSS, digits(), steps=2)
            raise LookupError("of the user")

    with pytest.raises(LookupError):
        fail()
    found = read(store)
    assert found.steps == [0, 1]
    assert found.end is not None
    assert found.end.reason == "failed"


def test_the_network_never_holds_the_training_up(said: list[str]) -> None:
    release = threading.Event()

    class Stuck(MemoryObjects):
        def put(self, key: str, body: bytes) -> None:
            release.wait(60)
            super().put(key, body)

    model, store = mlp(), Stuck()
    optimizer = sgd(model)
    hook = watched(store, model, optimizer, LOSS, strict=False, _limits=QUICK, close_timeout_s=0)
    losses = train(model, optimizer, LOSS, digits(), steps=8)
    hook.close()  # with close_timeout_s=0 it does not wait either
    assert losses == bare(8)
    assert "could not be uploaded" in said[-1]
    release.set()


def test_a_full_disk_is_said_and_what_waited_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    original, full = files.write_atomically, threading.Event()
    full.set()

    def write(path: Path, body: bytes) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(path, body)

    monkeypatch.setattr(files, "write_atomically", write)
    model = mlp()
    optimizer = sgd(model)
    hook = trainwarden.watch(model, optimizer, LOSS, job="job", out=tmp_path, _limits=QUICK)
    losses = train(model, optimizer, LOSS, digits(), steps=8)
    while not said:
        hook.flush(0.01)
    full.clear()
    hook.close()
    assert losses == bare(8)
    assert os.strerror(errno.ENOSPC) in said[0]
    assert said[1:] == ["trainwarden: the upload works again"]
    assert read(FolderObjects(tmp_path)).steps == [*range(8)]


def test_memory_is_bounded_while_nothing_can_be_uploaded() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    limits = replace(LAZY, pending_bytes=20_000)
    with watched(store, model, optimizer, LOSS, save_interval=1, _limits=limits):
        train(model, optimizer, LOSS, digits(), steps=30)
    found = read(store)
    assert found.steps[-1] == 29
    assert len(found.steps) + found.dropped["steps"] == 30
    assert found.dropped["steps"] > 20


def test_workers_of_a_data_loader_upload_nothing(tmp_path: Path) -> None:
    model, (x, y) = mlp(), digits(128)
    optimizer = sgd(model)
    hook = trainwarden.watch(model, optimizer, LOSS, job="job", out=tmp_path, strict=True)
    loader = DataLoader(
        TensorDataset(x, y), batch_size=32, num_workers=2, multiprocessing_context="fork"
    )
    with hook:
        for xb, yb in loader:
            optimizer.zero_grad()
            LOSS(model(xb), yb).backward()
            optimizer.step()
    found = read(FolderObjects(tmp_path))
    assert found.steps == [0, 1, 2, 3]
    assert found.end is not None
    assert found.end.reason == "finished"


# ---- arguments ----


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"model": "not a model"}, "a torch.nn.Module"),
        ({"optimizer": object()}, "a torch.optim.Optimizer"),
    ],
)
def test_what_cannot_be_watched_is_said_and_the_script_goes_on(
    arguments: dict[str, Any], told: str, said: list[str]
) -> None:
    model = mlp()
    hook = trainwarden.watch(**{"model": model, "job": "job", "out": "unused", **arguments})
    assert not hook.active
    assert told in said[0]
    hook.record("x", 1.0)
    assert hook.flush() is False
    assert (hook.step, hook.job, hook.stop_requested) == (0, "", False)
    hook.close()
    with pytest.raises(BadInputError, match=told):
        trainwarden.watch(
            **{"model": model, "job": "job", "out": "unused", "strict": True, **arguments}
        )


def test_a_misspelt_collection_is_said_with_the_nearest_right_one(said: list[str]) -> None:
    model, store = mlp(), MemoryObjects()
    with watched(store, model, sgd(model), LOSS, strict=False, collections=["weihgts"]) as hook:
        assert hook.active
    assert "did you mean 'weights'" in said[0]
    with pytest.raises(ConfigError, match="did you mean 'weights'"):
        watched(store, model, sgd(model), LOSS, collections=["weihgts"])


def test_a_second_watch_of_the_same_job_is_refused_with_the_way_to_do_it(said: list[str]) -> None:
    model, store = mlp(), MemoryObjects()
    with watched(store, model, sgd(model), LOSS) as first:
        second = watched(store, mlp(), None, strict=False)
        assert first.active
        assert not second.active
    assert "in one call" in said[0]


def test_one_job_after_another_can_be_watched() -> None:
    for job in ("first", "second"):
        model, store = mlp(), MemoryObjects()
        optimizer = sgd(model)
        with watched(store, model, optimizer, LOSS, job=job):
            train(model, optimizer, LOSS, digits(), steps=2)
        assert read(store, job).steps == [0, 1]


def test_only_the_first_rank_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    with watched(store, model, optimizer, LOSS):
        train(model, optimizer, LOSS, digits(), steps=2)
    assert list(store.keys("")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", 1.0),
        ("x" * 201, 1.0),
        ("x", "text"),
        ("x", None),
        ("x", object()),
        ("x", 1 + 2j),
    ],
)
def test_what_cannot_be_recorded_is_said_once(name: str, value: object, said: list[str]) -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    with watched(store, model, optimizer, LOSS, strict=False) as hook:
        for _ in range(3):
            train(model, optimizer, LOSS, digits(), steps=1)
            hook.record(name, value)
        assert hook.active
    assert len(said) == 1
    assert "record(" in said[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 10**20, True])
def test_every_number_can_be_recorded(value: float) -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    with watched(store, model, optimizer, LOSS) as hook:
        train(model, optimizer, LOSS, digits(), steps=1)
        hook.record("x", value)
    assert recorded(store).scalars("x", "metrics") == pytest.approx([float(value)], nan_ok=True)


def recorded(store: MemoryObjects) -> Recording:
    return read(store)


def test_a_hook_that_is_closed_does_nothing_more() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = sgd(model)
    hook = watched(store, model, optimizer, LOSS)
    train(model, optimizer, LOSS, digits(), steps=2)
    hook.close()
    train(model, optimizer, LOSS, digits(), steps=2)
    evaluate(model, LOSS, digits())
    hook.record("late", 1.0)
    hook.close()
    assert hook.step == 2
    assert recorded(store).steps == [0, 1]


def test_a_resumed_process_of_the_same_job_continues_its_record(tmp_path: Path) -> None:
    for start_step in (0, 2):
        model = mlp()
        optimizer = sgd(model)
        with trainwarden.watch(
            model, optimizer, LOSS, job="job", out=tmp_path, start_step=start_step, strict=True
        ):
            train(model, optimizer, LOSS, digits(), steps=2)
    found = read(FolderObjects(tmp_path))
    assert found.steps == [0, 1, 2, 3]
    assert len({obj.run for obj in found.objects}) == 1


def test_a_script_that_is_run_again_is_recorded_under_a_name_of_its_own(
    tmp_path: Path, said: list[str]
) -> None:
    for job in ("job", "job-2"):
        model = mlp()
        optimizer = sgd(model)
        with trainwarden.watch(model, optimizer, LOSS, job="job", out=tmp_path) as hook:
            train(model, optimizer, LOSS, digits(), steps=2)
        assert hook.job == job
        assert read(FolderObjects(tmp_path), job).steps == [0, 1]
    assert "recorded as job-2" in said[0]


def test_the_hook_can_be_copied_along_with_a_trainer_object() -> None:
    model, store = mlp(), MemoryObjects()
    with watched(store, model, sgd(model), LOSS) as hook:
        trainer = {"model": model, "hook": hook}
        twins = [copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))]  # noqa: S301 - ours
    for twin in twins:
        assert isinstance(twin["hook"], Hook)
        assert not twin["hook"].active
