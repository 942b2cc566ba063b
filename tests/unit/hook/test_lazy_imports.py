"""Whoever watches with one framework does not import another."""

from __future__ import annotations

import subprocess
import sys

import pytest

OTHERS = ("jax", "lightgbm", "lightning", "transformers", "xgboost")


@pytest.mark.parametrize(
    ("name", "own"),
    [("LightGBMCallback", "lightgbm"), ("PartialFit", "sklearn"), ("PytreeWatch", "jax"),
     ("XGBoostCallback", "xgboost"), ("watch", "torch"), ("LightningCallback", "lightning"),
     ("TransformersCallback", "transformers")],
)  # fmt: skip
def test_a_name_of_the_package_brings_its_own_framework_only(name: str, own: str) -> None:
    pytest.importorskip(own)
    # Lightning's metrics bring Transformers along, where that is installed.
    allowed = {own, "transformers"} if own == "lightning" else {own}
    others = [other for other in OTHERS if other not in allowed]
    code = f"import sys, trainwarden; trainwarden.{name}; print(set({others}) & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
