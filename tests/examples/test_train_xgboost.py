"""The boosted example, run as its docstring says, then judged by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.judged import issues

pytest.importorskip("xgboost")


def test_deep_trees_are_named(tmp_path: Path) -> None:
    assert "TreeDepth" in issues("train_xgboost.py", tmp_path)


def test_shallow_trees_are_left_alone(tmp_path: Path) -> None:
    assert issues("train_xgboost.py", tmp_path, "--max-depth", "3") == set()
