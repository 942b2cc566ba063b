from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Observation
from trainwarden.rules import build
from trainwarden.rules.feature_importance_overweight import FeatureImportanceOverweight

RULE = build("FeatureImportanceOverweight")
SAGEMAKER = build("FeatureImportanceOverweight", FeatureImportanceOverweight.meta.sagemaker or {})
HEAVY = {"a": 0.6, "b": 0.2, "c": 0.1, "d": 0.1}
EVEN = dict.fromkeys("abcdefghij", 0.1)


def run_of(
    values: dict[str, float], *, kind: str = "total_gain", features: float = 12.0, n: int = 4
) -> list[Observation]:
    script = Script()
    told = {f"{kind}/{name}": value for name, value in values.items()} | {f"{kind}/": features}
    return [script.step(i * 10, scalars={"feature_importance": told}) for i in range(n)]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of(HEAVY), [20], id="third-round"),
        pytest.param(run_of(HEAVY, n=2), [], id="two-are-not-enough"),
        pytest.param(run_of(EVEN), [], id="even"),
        pytest.param(run_of(HEAVY, features=8), [], id="few-to-choose-from"),
        pytest.param(run_of(HEAVY, kind="weight"), [], id="another-kind"),
        pytest.param(run_of({"a": NAN}), [], id="unknown"),
    ],
)
def test_few_features_carry_nearly_all(run: list[Observation], expected: list[int]) -> None:
    assert fired(RULE, run) == expected


def test_the_finding_names_the_features() -> None:
    (finding,) = fold(RULE, run_of(HEAVY))[1]
    assert finding.evidence == {"a": 0.6, "b": 0.2, "c": 0.1}
    assert finding.value == pytest.approx(0.9)
    assert finding.first_step == 0


@pytest.mark.parametrize(("values", "expected"), [(HEAVY, [0]), (EVEN, []), ({"a": 1.0}, [0])])
def test_sagemaker_counts_splits_at_once(values: dict[str, float], expected: list[int]) -> None:
    assert fired(SAGEMAKER, run_of(values, kind="weight", features=len(values))) == expected


def test_recorded_importances_are_divided_by_their_sum() -> None:
    names = [f"feature_importance/weight/{name}" for name in "abcd"]
    script = Script(*(tensor(name, "feature_importance", (1,)) for name in names))
    heavy: dict[str, Any] = dict(zip(names, (30.0, 5.0, 5.0, 4.0), strict=True))
    assert fired(SAGEMAKER, [script.step(0, heavy)]) == [0]
    assert fired(SAGEMAKER, [script.step(0, dict.fromkeys(names, 5.0))]) == []
