"""The examples of the frameworks, run by the commands at the end of their pages, then judged."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.examples.judged import ROOT, issues, train
from trainwarden.cli.main import main


class Example(NamedTuple):
    """One framework's example.

    Attributes:
        page: In docs/, without its ending.
        needs: The module to import.
        named: One of these rules names the fault of a run without arguments.
        healthy: Arguments for a run that nothing is wrong with.
        alone: Nothing else is named.
    """

    page: str
    needs: str
    named: set[str]
    healthy: str
    alone: bool = False


EXAMPLES = [
    Example("jax", "jax", {"LearningRateTooHigh"}, "--learning-rate 0.1"),
    Example("keras", "keras", {"LearningRateTooHigh"}, "--learning-rate 1e-3"),
    Example(
        "lightgbm", "lightgbm", {"Overfit"}, "--leaves 4 --learning-rate 0.05 --rounds 60", True
    ),
    Example("lightning", "lightning", {"LearningRateTooHigh"}, "--learning-rate 1e-3"),
    Example("sklearn", "sklearn", {"NotNormalizedData"}, "--standardise", True),
    Example(
        "transformers", "transformers", {"LearningRateTooHigh", "LearningRateSchedule"},
        "--learning-rate 3e-3",
    ),
    Example("xgboost", "xgboost", {"TreeDepth"}, "--max-depth 3"),
]  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.page)
def test_a_fault_is_named_and_its_healthy_twin_is_left_alone(
    example: Example,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")
    faulty, healthy = tmp_path / "faulty", tmp_path / "healthy"
    for folder in (faulty, healthy):
        folder.mkdir()
    training, *commands = at_the_end(example.page)
    assert training == ["python", f"examples/train_{example.page}.py"]
    train(training[1], (faulty, ()), (healthy, tuple(example.healthy.split())))

    check = judging(monkeypatch, capsys)
    found = issues(check(faulty, "check", ".trainwarden/runs", "--json"))
    assert found == example.named if example.alone else found & example.named
    assert issues(check(healthy, "check", ".trainwarden/runs", "--json")) == set()
    for program, *arguments in commands:
        assert program == "trainwarden"
        check(faulty, *arguments, status=0)
    assert list(faulty.glob("**/*.html"))


def at_the_end(page: str) -> list[list[str]]:
    """The words of each command in the last block of a page."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    return [line.split() for line in blocks[-1].splitlines()]


def judging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs a command of trainwarden in a folder; returns what it printed."""

    def run(folder: Path, *arguments: str, status: int | None = None) -> str:
        monkeypatch.chdir(folder)
        capsys.readouterr()
        ended = main(arguments)
        assert ended == status if status is not None else ended in {0, 1}
        return capsys.readouterr().out

    return run
