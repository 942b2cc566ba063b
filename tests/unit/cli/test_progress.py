"""How far a command with many runs is, on stderr."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from trainwarden.cli.main import main
from trainwarden.cli.progress import followed


def told(total: int, *, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80)
    assert list(followed(range(total), total, "replaying", console)) == list(range(total))
    return file.getvalue()


def test_a_line_each_tenth_of_many() -> None:
    said = told(25, terminal=False).splitlines()
    counts = [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    assert said == [f"replaying: {count} of 25" for count in counts]


def test_few_are_not_worth_a_line() -> None:
    assert told(19, terminal=False) == ""


def test_a_bar_on_a_terminal_for_more_than_one() -> None:
    assert "replaying" in told(2, terminal=True)
    assert told(1, terminal=True) == ""


def test_progress_of_many_runs_leaves_what_is_printed_whole(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(20):
        shutil.copytree(runs / "jobs" / "healthy", tmp_path / f"{number:02}" / "jobs" / "healthy")
    argv = ("replay", str(tmp_path), "--rules", "Overfit", "--workers", "1")
    assert main(argv) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [f"replaying: {count} of 20" for count in range(2, 21, 2)]
    assert "0 of 20 with issues" in printed.out
    assert "replaying" not in printed.out
