"""The scikit-learn example, run as its docstring says, then judged by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.judged import issues

pytest.importorskip("sklearn")


def test_a_raw_table_is_named(tmp_path: Path) -> None:
    assert issues("train_sklearn.py", tmp_path) == {"NotNormalizedData"}


def test_a_standardised_table_is_left_alone(tmp_path: Path) -> None:
    assert issues("train_sklearn.py", tmp_path, "--standardise") == set()
