"""The page about rules of one's own: its commands run in this order, its JSON is understood."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trainwarden
from trainwarden import rules
from trainwarden.cli import own_rules
from trainwarden.cli.main import main
from trainwarden.config import resolve
from trainwarden.rules import names

PAGE = (Path(__file__).parents[2] / "docs/custom-rules.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rules, "_added", [])
    monkeypatch.setattr(own_rules, "_loaded", {})
    torch.manual_seed(0)
    model, data = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainwarden.watch(model, optimizer, job="train-1", out=".trainwarden/runs"):
        for _ in range(30):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(data), data.sum(1, keepdim=True))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    yield
    monkeypatch.undo()
    rules.registry.cache_clear()


@pytest.mark.usefixtures("_recorded")
def test_the_commands_work_in_this_order(capsys: pytest.CaptureFixture[str]) -> None:
    for line in "".join(blocks("bash")).splitlines():
        program, *argv = shlex.split(line)
        assert program == "trainwarden"
        assert main([*argv, *(["--workers", "1"] if argv[0] == "replay" else [])]) == 0
    said = capsys.readouterr().out
    assert "HighLoss" in said
    assert "train-1" in said


def test_the_limits_are_understood() -> None:
    config = resolve(tags={}, manifest_rules=json.loads(blocks("json")[0]))
    assert config.problems == ()
    keys = [spec.key for spec in config.rules]
    assert keys == [*names(), "head-norm", "loss-doubles"]
