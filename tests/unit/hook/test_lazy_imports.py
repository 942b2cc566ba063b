"""Whoever watches with one framework does not import another."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

OWN = {
    "PartialFit": "sklearn",
    "PytreeWatch": "jax",
    "KerasCallback": "keras",
    "XGBoostCallback": "xgboost",
    "LightGBMCallback": "lightgbm",
    "watch": "torch",
    "TransformersCallback": "transformers",
    "LightningCallback": "lightning",
}
BELOW = {"TransformersCallback": {"torch"}, "LightningCallback": {"torch"}}
# One process for all of them: what our modules ask for is noted, be it there already or not.
SCRIPT = """
import builtins, json, os, sys

os.environ["KERAS_BACKEND"] = "torch"

frameworks, asked, real = set(json.loads(sys.argv[1]).values()), set(), builtins.__import__

def noting(name, globals=None, *rest, **named):
    if (globals or {}).get("__name__", "").startswith("trainwarden"):
        asked.add(name.partition(".")[0])
    return real(name, globals, *rest, **named)

builtins.__import__ = noting
import trainwarden
found = {"": sorted(frameworks & set(sys.modules))}
for name in json.loads(sys.argv[1]):
    asked.clear()
    getattr(trainwarden, name)
    found[name] = sorted(asked & frameworks)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def asked() -> dict[str, list[str]]:
    """The frameworks that our modules import for a name; for none those of the package."""
    installed = {name: own for name, own in OWN.items() if find_spec(own) is not None}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(installed)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_the_package_brings_none(asked: dict[str, list[str]]) -> None:
    assert asked[""] == []


@pytest.mark.parametrize(("name", "own"), OWN.items())
def test_a_name_of_the_package_brings_its_own_framework_only(
    name: str, own: str, asked: dict[str, list[str]]
) -> None:
    if name not in asked:
        pytest.skip(f"{own} is not installed")
    assert set(asked[name]) - BELOW.get(name, set()) == {own}
