"""Losses that SageMaker Debugger recorded, and where its documented meaning fires on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.rules.runs import fold
from trainwarden.model import Mode, Observation
from trainwarden.rules import build, find

RECORDED = json.loads((Path(__file__).parent / "data" / "debugger_losses.json").read_text())


def _numbers(losses: dict[str, float | str]) -> dict[str, float]:
    return {name: float(value) for name, value in losses.items()}


def recorded(name: str) -> list[Observation]:
    return [
        Observation(step, Mode(mode), mode_step, 1e9 + step, scalars={"losses": _numbers(losses)})
        for step, mode, mode_step, losses in RECORDED[name]["steps"]
    ]


@pytest.mark.parametrize("run", RECORDED)
@pytest.mark.parametrize("rule", ["LossNotDecreasing", "Overfit"])
def test_the_sagemaker_profile_fires_where_debugger_would(run: str, rule: str) -> None:
    built = build(rule, dict(find(rule).meta.sagemaker or {}))
    fired = sorted({finding.step for finding in fold(built, recorded(run))[1]})
    assert fired == RECORDED[run]["fired"][rule]


@pytest.mark.parametrize("run", RECORDED)
def test_diff_percent_is_the_least_decrease(run: str) -> None:
    given: dict[str, Any] = {"num_steps": 10, "diff_percent": 5.0}
    fired = {f.step for f in fold(build("LossNotDecreasing", given), recorded(run))[1]}
    assert sorted(fired) == RECORDED[run]["fired"]['LossNotDecreasing{"diff_percent": 5.0}']
