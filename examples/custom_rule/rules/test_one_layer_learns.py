"""The rule's own test: ``pytest examples/custom_rule``. Tests are not deployed."""
# ruff: noqa: S101, D103 - pytest asserts, and a test's name says what it is

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainwarden.custom.folder import load
from trainwarden.model import Finding, Json, Layout, Mode, Observation, TensorInfo
from trainwarden.stats.reductions import row

OneLayerLearns: Any = load(Path(__file__).parent)["OneLayerLearns"]  # as a deployment does
RULE = OneLayerLearns(patience=2)
LAYOUT = Layout(tuple(TensorInfo(f"gradient/{n}", "gradients", (4,)) for n in "abc"))
FLAT, STEEP, NOTHING = (1.0, 1.0, 1.0), (100.0, 1.0, 1.0), (0.0, 0.0, 0.0)


def run_of(steps: Sequence[Sequence[float]]) -> list[Observation]:
    """Three gradients, one value each a saved step."""
    tables = [np.stack([row(np.full(4, v), dtype="float64") for v in step]) for step in steps]
    return [
        Observation(step, Mode.TRAIN, step, float(step), LAYOUT, table)
        for step, table in enumerate(tables)
    ]


def fold(run: Sequence[Observation]) -> list[Finding]:
    """Judge a run; between two steps the state is stored as JSON, as in the cloud."""
    state: Json = RULE.start()
    found: list[Finding] = []
    for obs in run:
        state, new = RULE.advance(json.loads(json.dumps(state)), obs)
        found += new
    return found


@pytest.mark.parametrize(
    ("steps", "fired_at"),
    [
        pytest.param([FLAT] * 4, [], id="shared"),
        pytest.param([STEEP] * 4, [1], id="fires-once-a-streak"),
        pytest.param([STEEP, FLAT, STEEP, STEEP], [3], id="recovery-resets"),
        pytest.param([STEEP, NOTHING, STEEP], [2], id="nothing-says-nothing"),
        pytest.param([(np.inf, 1.0, 1.0)] * 3, [], id="not-finite"),
    ],
)
def test_fires_at(steps: Sequence[Sequence[float]], fired_at: list[int]) -> None:
    found = fold(run_of(steps))
    assert [one.step for one in found] == fired_at
    assert all(one.tensor == "gradient/a" for one in found)
