"""Real loops that are asked for detail: denser for a while, whatever was planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trainwarden
from tests.training.loops import digits, mlp, record, watched
from tests.unit.hook.recording import Recording, read
from trainwarden import PartialFit
from trainwarden.cli.main import main
from trainwarden.hook import Hook
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Watching
from trainwarden.model import Collection, Mode
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.control import Control, DetailRequest
from trainwarden.wire.keys import control_key

X, Y = digits(16)
ASKED = Control(1, details=(DetailRequest("Overfit", steps=4),))


def session_of(hook: Hook) -> Session:
    assert hook._session is not None
    return hook._session


def run(asked: Control | None, steps: int = 130, **options: Any) -> tuple[Recording, nn.Sequential]:
    """Train a small network; in step 115 the background hears what is asked."""
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(hook: Hook) -> None:
        for step in range(steps):
            optimizer.zero_grad()
            loss_fn(model(X), Y).backward()
            if step == 115 and asked is not None:
                session_of(hook)._control(asked)
            optimizer.step()

    return record(model, loop, optimizer, loss_fn, **options), model


@pytest.fixture(scope="module")
def dense() -> Recording:
    """A run that may not spend anything any more, and was to save nothing."""
    when: dict[str, Any] = {"save_interval": 50, "end_step": 100, "dense_steps": 0}
    return run(ASKED, max_overhead=1e-9, **when)[0]


def test_the_steps_after_it_are_saved_and_then_what_was_planned(dense: Recording) -> None:
    assert dense.steps == [0, 50, 116, 117, 118, 119]


def test_a_step_in_detail_has_all_that_is_captured(dense: Recording) -> None:
    for name in ("0.weight", "gradient/2.bias", "activation/1", "input/0"):
        values = dense.values(name, "l2")
        assert np.isfinite(values).all(), name
    assert np.isfinite(dense.scalars("loss")).all()


def test_facts_say_that_it_was_asked_for(dense: Recording) -> None:
    assert dense.scalars("request", Collection.CAPTURE) == [1.0] * 4
    assert dense.scalars("request_left", Collection.CAPTURE) == [3.0, 2.0, 1.0, 0.0]


def test_training_is_the_same_bit_by_bit() -> None:
    asked, plain = (run(control)[1].state_dict() for control in (ASKED, None))
    assert all(torch.equal(asked[name], plain[name]) for name in plain)


SPARSE: Any = {"job": "job", "save_interval": 1000, "dense_steps": 1, "strict": True}


def ask(watching: Watching[Any]) -> None:
    assert watching.session is not None
    watching.session._control(ASKED)


def train_sklearn(store: MemoryObjects) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    with PartialFit(linear_model.SGDRegressor(), out="memory", _store=store, **SPARSE) as fit:
        for step in range(20):
            if step == 5:
                ask(fit._watching)
            fit.partial_fit(X.numpy(), Y.numpy())


def train_jax(store: MemoryObjects) -> None:
    pytest.importorskip("jax")
    weights = {"w": X.numpy()}
    with trainwarden.PytreeWatch(out="memory", _store=store, **SPARSE) as watch:
        for step in range(20):
            if step == 5:
                ask(watch._watching)
            watch.observe(weights, weights, 1.0)


def train_xgboost(store: MemoryObjects) -> None:
    xgboost = pytest.importorskip("xgboost")
    callback = trainwarden.XGBoostCallback(out="memory", _store=store, **SPARSE)

    class Asking(xgboost.callback.TrainingCallback):  # type: ignore[misc, name-defined]  # no types
        def before_iteration(self, _model: Any, epoch: int, _evals: Any) -> bool:
            if epoch == 5:
                ask(callback._watching)
            return False

    matrix = xgboost.DMatrix(X.numpy(), Y.numpy())
    given = {"evals": [(matrix, "train")], "verbose_eval": False}
    xgboost.train({"nthread": 1}, matrix, 20, callbacks=[Asking(), callback], **given)


@pytest.mark.parametrize("train", [train_sklearn, train_jax, train_xgboost])
def test_a_training_without_torch_is_denser_too(train: Callable[[MemoryObjects], None]) -> None:
    store = MemoryObjects()
    train(store)
    found = read(store)
    assert found.steps == [0, 5, 6, 7, 8]
    assert found.scalars("request_left", Collection.CAPTURE) == [3.0, 2.0, 1.0, 0.0]


def test_evaluation_goes_on_as_planned() -> None:
    store, model = MemoryObjects(), mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watched(store, model, optimizer, nn.CrossEntropyLoss(), dense_steps=1) as hook:
        session_of(hook)._control(ASKED)
        for _ in range(3):
            model.train()
            model(X).sum().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                hook.record("loss", model(X).sum(), collection="losses")
    found = read(store)
    assert [o.step for o in found.of(Mode.TRAIN)] == [0, 1, 2]
    assert all(Collection.CAPTURE not in o.scalars for o in found.of(Mode.EVAL))


def test_a_person_asks_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with trainwarden.watch(model, optimizer, job="job", out=tmp_path, strict=True):
        model(X).sum().backward()
        optimizer.step()
    asked = ["capture", "job", "--steps", "20", "--tensors", "0.weight", "2.*"]
    assert main([*asked, "--at", str(tmp_path)]) == 0
    assert main([*asked, "--at", str(tmp_path), "--interval", "2"]) == 0
    body = FolderObjects(tmp_path).get(control_key("job"), max_bytes=10_000)
    first, second = Control.from_bytes(body or b"").details
    assert first.id != second.id
    assert (first.steps, first.interval, first.tensors) == (20, 1, ("0.weight", "2.*"))
    assert second.interval == 2
    assert "job is asked for 20 steps in detail" in capsys.readouterr().out
    assert main(["capture", "job", "--steps", "0", "--at", str(tmp_path)]) == 2
    assert main(["capture", "nobody", "--at", str(tmp_path)]) == 2
