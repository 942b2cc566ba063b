"""The page about replay: its commands run as they stand, and its options are those there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

import trainwarden
from trainwarden.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs/replay.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(64, 4)
    target = data.sum(1, keepdim=True)
    with trainwarden.watch(model, optimizer, job="train-1", out=".trainwarden/runs"):
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(data), target).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@pytest.mark.usefixtures("_recorded")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *argv = shlex.split(command)
    assert program == "trainwarden"
    assert main([*argv, "--workers", "1"]) in {0, 1}
    assert "train-1" in capsys.readouterr().out


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options == set(re.findall(r"`(--[a-z-]+)", PAGE))
