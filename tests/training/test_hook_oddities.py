"""Values and tensors that cannot be read are left out; the watch goes on, and so does training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import trainwarden
from tests.training.loops import digits, mlp, train, watched
from tests.unit.hook.recording import read
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects

LOSS = nn.CrossEntropyLoss()


class Raising:
    """An object on which nothing works."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise LookupError("of the user")

    __array__ = __len__ = __str__ = __float__ = __index__ = __getitem__ = _raise
    __bool__ = __repr__ = _raise


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(())


@pytest.mark.parametrize(
    "value",
    [
        10**400,
        torch.ones((), device="meta"),
        torch.ones(3, device="meta"),
        nn.UninitializedParameter(),
        Raising(),
        [Raising()],
    ],
    ids=["huge", "meta", "meta vector", "lazy", "raising", "raising inside"],
)
@pytest.mark.parametrize("saved", [True, False])
def test_a_value_that_cannot_be_read_is_left_out_with_one_warning(
    value: object, *, saved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    interval = {"save_interval": 1} if saved else {"save_interval": 2, "dense_steps": 0}
    with watched(store, model, optimizer, LOSS, strict=False, **interval) as hook:
        for _ in range(4):
            train(model, optimizer, LOSS, digits(), steps=1)
            hook.record("odd", value)
            hook.record("even", 2.0)
        assert hook.active
    assert len(caplog.records) == 1
    assert "record(" in caplog.text
    assert set(read(store).scalars("even", "metrics")) == {2.0}
    assert not read(store).scalars("odd", "metrics")


def test_a_fake_scalar_and_names_that_cannot_be_read_do_no_harm() -> None:
    model, store = mlp(), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(store, model, optimizer, LOSS, strict=False) as hook:
        for _ in range(2):
            hook.record("fake", fake())
            hook.record(Raising(), 1.0)  # type: ignore[arg-type]
            hook.record("x", 1.0, Raising())  # type: ignore[arg-type]
            train(model, optimizer, LOSS, digits(), steps=1)
        assert hook.active
    assert read(store).steps == [0, 1]


@pytest.mark.parametrize(
    "types",
    [
        (torch.float32, torch.float64),
        (torch.bfloat16, torch.float16),
        (torch.float16, torch.bfloat16),
        (torch.float64, torch.float32),
    ],
    ids=str,
)
def test_weights_may_change_their_type_and_updates_start_anew(
    types: tuple[torch.dtype, torch.dtype],
) -> None:
    model, store, (x, y) = mlp(), MemoryObjects(), digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watched(store, model, optimizer, LOSS) as hook:
        for dtype in types:
            model.to(dtype)
            train(model, optimizer, LOSS, (x.to(dtype), y), steps=3)
        assert hook.active
    found = read(store)
    assert found.steps == [*range(6)]
    updates = found.values("0.weight", "update_l2")
    assert [update != update for update in updates] == [True, False, False] * 2  # noqa: PLR0124 - NaN
    assert max(update for update in updates if update == update) < 1  # noqa: PLR0124 - NaN


class Output:
    """What a model of the user's returns; its loss can only be asked for in evaluation."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    @property
    def loss(self) -> torch.Tensor:
        raise LookupError("no labels were passed")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: torch.Tensor) -> Output:
        return Output(self.body(x))


def test_an_output_whose_loss_raises_has_none(caplog: pytest.LogCaptureFixture) -> None:
    model, store, (x, y) = Model(), MemoryObjects(), digits(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with watched(store, model, optimizer, None, strict=False) as hook:
        for _ in range(3):
            optimizer.zero_grad()
            loss = LOSS(model(x).logits, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert hook.active
    assert read(store).scalars("loss") == pytest.approx(losses)
    assert caplog.text.count("no labels were passed") == 1


def test_a_working_directory_that_was_deleted_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, out = tmp_path / "gone", tmp_path / "out"
    gone.mkdir()
    monkeypatch.chdir(gone)
    os.rmdir(gone)  # noqa: PTH106 - as a shell would
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainwarden.watch(model, optimizer, LOSS, job="job", out=out, strict=True) as hook:
        train(model, optimizer, LOSS, digits(), steps=2)
        assert hook.active
    assert read(FolderObjects(out)).steps == [0, 1]


def test_a_run_that_is_over_but_not_closed_collects_nothing_of_other_models() -> None:
    model, other, store = mlp(), mlp(1), MemoryObjects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    theirs = torch.optim.SGD(other.parameters(), lr=0.1)
    with watched(store, model, optimizer, None, save_interval=1) as hook:
        losses = train(model, optimizer, LOSS, digits(), steps=3)
        train(other, theirs, LOSS, digits(), steps=40)
        assert hook.step == 3
        losses += train(model, optimizer, LOSS, digits(), steps=1)
    assert read(store).scalars("loss") == pytest.approx(losses)
