"""Real loops that are asked to stop: they end after a whole step and a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import trainwarden
from tests.training.loops import digits, mlp
from tests.unit.hook.recording import QUICK, read
from trainwarden.cli.main import main
from trainwarden.pipeline.control import ask_to_stop
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.control import Control, DetailRequest
from trainwarden.wire.keys import control_key

X, Y = digits(16)


def train(store: MemoryObjects, checkpoint: Path, stop: str | None) -> tuple[int, int]:
    """Train until asked to stop, at step 10; returns steps made, and when the checkpoint was."""
    model, loss_fn = mlp(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    saved: list[int] = []

    def on_stop(reason: str) -> None:
        assert reason == "enough"
        saved.append(hook.step)
        torch.save(model.state_dict(), checkpoint)

    hook = trainwarden.watch(
        model, optimizer, loss_fn, job="job", on_stop=on_stop, strict=True, _store=store,
        _limits=QUICK, stop=stop,
    )  # fmt: skip
    made = 0
    try:
        for made in range(1, 21):
            if made == 10:
                assert hook._session is not None
                hook._session.stopping.ask("enough")  # as the background does, when it hears of it
            optimizer.zero_grad()
            loss_fn(model(X), Y).backward()
            optimizer.step()
    finally:
        hook.close()
    assert torch.equal(torch.load(checkpoint)["0.weight"], model.state_dict()["0.weight"])
    return made, saved[0]


def test_a_loop_that_may_be_stopped_ends_after_its_step(tmp_path: Path) -> None:
    store = MemoryObjects()
    with pytest.raises(trainwarden.StopTraining, match="enough"):
        train(store, tmp_path / "checkpoint.pt", "allow")
    found = read(store)
    assert found.steps == list(range(10))
    assert found.end is not None
    assert found.end.reason == "stopped"
    assert found.manifest.capture["stop"] == "allow"


def test_one_that_may_not_goes_on_and_is_told(tmp_path: Path) -> None:
    store = MemoryObjects()
    with pytest.raises(AssertionError):
        train(store, tmp_path / "checkpoint.pt", None)  # trained on: not the checkpoint's weights
    found = read(store)
    assert found.steps == [*range(10), 10]
    assert found.end is not None
    assert found.end.reason == "finished"


def test_a_person_asks_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with trainwarden.watch(model, optimizer, job="job", out=tmp_path, strict=True):
        model(X).sum().backward()
        optimizer.step()
    assert main(["stop", "job", "--at", str(tmp_path), "--reason", "too slow"]) == 0
    body = FolderObjects(tmp_path).get(control_key("job"), max_bytes=10_000)
    assert Control.from_bytes(body or b"") == Control(
        1, stop=True, reason="too slow", stop_version=1
    )
    assert main(["stop", "nobody", "--at", str(tmp_path)]) == 2
    assert "job is asked to stop" in capsys.readouterr().out


def test_a_control_document_is_replaced_whatever_lies_there() -> None:
    store, key = MemoryObjects(), control_key("job")
    for version in (1, 2):  # asked again, a run that was continued meanwhile hears of it
        assert ask_to_stop(store, "job", "a").version == version
    details = (DetailRequest("one", tensors=("fc1.*",)),)
    store.put(key, Control(7, details=details).to_bytes())
    asked = Control(8, stop=True, reason="a", details=details, stop_version=8)
    assert ask_to_stop(store, "job", "a") == asked
    assert Control.from_bytes(store.get(key, max_bytes=10_000) or b"") == asked
    store.put(key, b"nonsense")
    assert ask_to_stop(store, "job", "a").version == 1
