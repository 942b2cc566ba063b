"""The boosted example, run as its docstring says, then judged by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("xgboost")

ROOT = Path(__file__).parents[2]


def issues(folder: Path, *arguments: str) -> set[str]:
    """Train in an empty folder; the rules that found something to warn of."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWARDEN", "SM_"))}
    script = str(ROOT / "examples/train_xgboost.py")
    done = subprocess.run(
        [sys.executable, script, *arguments],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    looked = subprocess.run(
        [sys.executable, "-m", "trainwarden.cli.main", "check", ".trainwarden/runs", "--json"],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found: Any = json.loads(looked.stdout)
    told = {
        verdict["rule"] for verdict in found[0]["verdicts"] if verdict["status"] == "IssuesFound"
    }
    return told - {"FeatureImportanceOverweight"}  # told as info


def test_deep_trees_are_named(tmp_path: Path) -> None:
    assert "TreeDepth" in issues(tmp_path)


def test_shallow_trees_are_left_alone(tmp_path: Path) -> None:
    assert issues(tmp_path, "--max-depth", "3") == set()
