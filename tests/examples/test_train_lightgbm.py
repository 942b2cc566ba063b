"""The LightGBM example, run as its docstring says, then judged by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.judged import issues

pytest.importorskip("lightgbm")


def test_boosting_past_the_best_round_is_named(tmp_path: Path) -> None:
    assert issues("train_lightgbm.py", tmp_path) == {"Overfit"}


def test_small_trees_are_left_alone(tmp_path: Path) -> None:
    small = ("--leaves", "4", "--learning-rate", "0.05", "--rounds", "60")
    assert issues("train_lightgbm.py", tmp_path, *small) == set()
