"""The page about reports: its commands run as they stand, its options are those there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

import trainwarden
from trainwarden.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs/report.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, data = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainwarden.watch(model, optimizer, job="train-1", out=".trainwarden/runs"):
        for _ in range(30):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(data), data.sum(1, keepdim=True))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@pytest.mark.usefixtures("_recorded")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *argv = shlex.split(command)
    assert program == "trainwarden"
    assert main(argv) == 0
    out = argv[argv.index("--out") + 1] if "--out" in argv else "report.html"
    assert f"wrote {out}: train-1" in capsys.readouterr().out
    written = Path(out).read_text("utf-8")
    for part in ("<h1>train-1</h1>", "<h2>Verdicts</h2>", "<h2>Learning</h2>"):
        assert part in written


def test_the_page_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert options == set(re.findall(r"`(--[a-z-]+)", PAGE))


@pytest.mark.parametrize("name", re.findall(r"^\| ([A-Z][a-z ]+) \|", PAGE, re.MULTILINE))
def test_every_part_of_the_table_is_a_heading_that_a_report_may_have(name: str) -> None:
    folder = Path(trainwarden.__file__).parent / "report"
    assert any(f'"{name}' in path.read_text("utf-8") for path in folder.glob("*.py"))
