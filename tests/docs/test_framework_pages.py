"""The code and the commands on the pages of other frameworks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
X, Y = np.random.RandomState(0).normal(size=(200, 4)), np.arange(200) % 2


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def run(page: str, names: dict[str, Any]) -> None:
    """Run the page's Python in the current folder, one block after the other."""
    for block in blocks(page, "python"):
        exec(block, names)  # noqa: S102 - our own page


def ended(folder: Path) -> int:
    return len(list(folder.glob(".trainwarden/runs/jobs/*/end/0000.tw")))


def test_the_code_for_lightgbm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.chdir(tmp_path)
    names = {"X": X[:150], "y": Y[:150], "X_valid": X[150:], "y_valid": Y[150:]}
    quiet = {"objective": "binary", "num_threads": 1, "verbosity": -1}
    valid = lightgbm.Dataset(X[150:], Y[150:])
    run("lightgbm.md", {**names, "parameters": quiet, "valid": valid})
    assert ended(tmp_path) == 2


def test_the_code_for_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    batches = [(X[begin : begin + 50], Y[begin : begin + 50]) for begin in (0, 50, 100)]
    names = {"batches": batches, "classes": [0, 1], "X_valid": X[150:], "y_valid": Y[150:]}
    run("sklearn.md", names)
    assert ended(tmp_path) == 1


def test_the_code_for_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    given = """
import jax, numpy as np
x = np.random.RandomState(0).normal(size=(50, 4)).astype(np.float32)
batches, params, rate = [(x, x[:, 0])] * 2, {"w": jax.numpy.zeros(4)}, 0.1
x_valid, y_valid = batches[0]
def loss_of(params, x, y):
    return ((x @ params["w"] - y) ** 2).mean()
"""
    code = given + "".join(blocks("jax.md", "python"))
    finished([sys.executable, "-c", code], tmp_path)  # once loaded, JAX warns of every fork
    assert ended(tmp_path) == 1


def finished(command: list[str], folder: Path) -> None:
    """Run a command in a folder."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWARDEN", "SM_"))}
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("page", "needs"),
    [("jax.md", "jax"), ("lightgbm.md", "lightgbm"), ("sklearn.md", "sklearn"),
     ("xgboost.md", "xgboost")],
)  # fmt: skip
def test_the_commands_at_the_end_of_a_page(page: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for line in blocks(page, "bash")[-1].splitlines():
        program, *arguments = line.split()
        start = {"python": [], "trainwarden": ["-m", "trainwarden.cli.main"]}[program]
        finished([sys.executable, *start, *arguments], tmp_path)
    assert list(tmp_path.glob("**/*.html"))
