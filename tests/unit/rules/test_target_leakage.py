from __future__ import annotations

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules import build

RULE = build("TargetLeakage")


def run_of(share: float, training: float, validation: float, *, n: int = 30) -> list[Observation]:
    """A run whose losses are multiplied by these factors each round, from 1."""
    script, run = Script(), []
    told = {"total_gain/leak": share, "total_gain/other": 1 - share, "total_gain/": 9.0}
    for i in range(n):
        scalars = {"feature_importance": told}
        run.append(script.step(i, loss=training**i, scalars=scalars))
        run.append(script.step(i, loss=validation**i, mode=Mode.EVAL))
    return run


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of(0.97, 0.7, 0.7), [7], id="both-losses-collapse"),
        pytest.param(run_of(0.90, 0.7, 0.7), [], id="other-features-help"),
        pytest.param(run_of(0.97, 0.7, 0.99), [], id="validation-does-not-follow"),
        pytest.param(run_of(0.97, 0.95, 0.95), [], id="slow-learning"),
        pytest.param(run_of(NAN, 0.7, 0.7), [], id="unknown-share"),
        pytest.param(run_of(0.97, -0.7, 0.7), [], id="losses-of-either-sign"),
    ],
)
def test_one_feature_gives_the_answer_away(run: list[Observation], expected: list[int]) -> None:
    assert fired(RULE, run) == expected


def test_the_finding_names_the_feature_and_how_fast_it_went() -> None:
    (finding,) = fold(RULE, run_of(0.97, 0.7, 0.7))[1]
    assert finding.evidence["feature"] == "leak"
    assert finding.evidence["training_fall"] == pytest.approx(1 - 0.7**7)
    assert finding.confidence < 1
