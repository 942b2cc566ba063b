"""The Lightning example, run as its docstring says, then judged by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.judged import issues

pytest.importorskip("lightning")


def test_a_learning_rate_that_is_too_high_is_named(tmp_path: Path) -> None:
    assert "LearningRateTooHigh" in issues("train_lightning.py", tmp_path)


def test_one_that_fits_is_left_alone(tmp_path: Path) -> None:
    assert issues("train_lightning.py", tmp_path, "--learning-rate", "1e-3") == set()
