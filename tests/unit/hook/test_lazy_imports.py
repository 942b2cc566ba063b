"""Whoever watches with one framework does not import another."""

from __future__ import annotations

import subprocess
import sys

import pytest

OTHERS = ("jax", "lightgbm", "torch", "xgboost")


@pytest.mark.parametrize(
    ("name", "own"),
    [("LightGBMCallback", "lightgbm"), ("PartialFit", "sklearn"), ("PytreeWatch", "jax"),
     ("XGBoostCallback", "xgboost"), ("watch", "torch")],
)  # fmt: skip
def test_a_name_of_the_package_brings_its_own_framework_only(name: str, own: str) -> None:
    pytest.importorskip(own)
    others = [other for other in OTHERS if other != own]
    code = f"import sys, trainwarden; trainwarden.{name}; print(set({others}) & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
