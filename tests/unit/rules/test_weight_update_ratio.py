from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices
from trainwarden.model import Mode, Observation
from trainwarden.rules.weight_update_ratio import WeightUpdateRatio

RULE = WeightUpdateRatio()


def run_of(*values: float, every: int = 1, mode: Mode = Mode.TRAIN) -> list[Observation]:
    script = Script(*matrices("a"))
    return [script.step(i * every, {"a": v}, mode=mode) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "given", "fired_at"),
    [
        pytest.param([1, 1.1, 1.2], {}, [], id="between"),
        pytest.param([1, 12, 13], {}, [1], id="large"),
        pytest.param([1, 12, 150, 160, 1800], {}, [1, 4], id="once-until-it-is-back"),
        pytest.param([1, 1, 1, 1.1], {}, [1], id="small"),
        pytest.param([0, 1, 1.1], {}, [1], id="from-zero"),
        pytest.param([NAN, 1, NAN], {}, [], id="nan"),
        pytest.param([1, 1.5, 1.6], {"large_threshold": 0.3}, [1], id="own-limit"),
        pytest.param([1, 1.0, 1.0], {"small_threshold": 0.0}, [], id="no-lower-limit"),
        pytest.param([1], {}, [], id="nothing-to-compare-with"),
    ],
)
def test_fires_at(values: Sequence[float], given: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(WeightUpdateRatio(**given), run_of(*values)) == fired_at


def test_the_ratio_is_that_of_the_norms() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(4, 4)), 20 * rng.normal(size=(4, 4))
    script = Script(*matrices("a"))
    (finding,) = fold(RULE, [script.step(0, {"a": before}), script.step(1, {"a": after})])[1]
    want = np.linalg.norm(after - before) / (np.linalg.norm(before) + 1e-9)
    assert finding.value == pytest.approx(want, rel=1e-5)
    assert finding.evidence["kind"] == "large"


def test_saved_steps_closer_than_num_steps_are_passed_over() -> None:
    assert fired(WeightUpdateRatio(num_steps=10), run_of(1, 12, 150, every=5)) == []
    assert fired(WeightUpdateRatio(num_steps=10), run_of(1, 12, 150, every=10)) == [10]


def test_evaluation_passes_are_not_looked_at() -> None:
    assert fired(RULE, run_of(1, 12, mode=Mode.EVAL)) == []


def test_it_must_be_asked_for() -> None:
    assert not RULE.meta.default
    assert WeightUpdateRatio(**dict(RULE.meta.sagemaker or {})) == RULE
