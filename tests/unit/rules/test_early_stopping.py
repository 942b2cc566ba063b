from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses
from trainwarden.model import Mode, Observation
from trainwarden.rules.early_stopping import EarlyStopping

RULE = EarlyStopping(patience=3)


def accuracies(values: Sequence[float]) -> list[Observation]:
    script = Script()
    return [
        script.step(i, mode=Mode.EVAL, scalars={"metrics": {"accuracy": v}})
        for i, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "fired_at"),
    [
        pytest.param([3, 2, 1, 1, 1, 1], [5], id="third-without-improvement"),
        pytest.param([3, 2, 1, 1, 1], [], id="two-are-not-enough"),
        pytest.param([3, 1, 2, 2, 0.9, 1, 1, 1], [7], id="improvement-resets"),
        pytest.param([1] * 20, [3], id="once"),
        pytest.param([1, NAN, NAN, NAN, 1, 1, 1], [6], id="nan-does-not-count"),
        pytest.param([INF, INF, INF, INF], [3], id="infinity-is-no-improvement"),
        pytest.param([], [], id="empty"),
    ],
)
def test_fires_at(values: Sequence[float], fired_at: list[int]) -> None:
    assert fired(RULE, losses(values, mode=Mode.EVAL)) == fired_at


def test_min_delta_and_min_steps() -> None:
    slowly = [1 - 0.01 * i for i in range(10)]
    assert fired(RULE, losses(slowly, mode=Mode.EVAL)) == []
    assert fired(EarlyStopping(patience=3, min_delta=0.1), losses(slowly, mode=Mode.EVAL)) == [3]
    patient = EarlyStopping(patience=3, min_steps=8)
    assert fired(patient, losses([1] * 10, mode=Mode.EVAL)) == [8]


def test_a_metric_that_should_rise() -> None:
    rule = EarlyStopping(metric="accuracy", patience=2, higher_is_better=True)
    assert fired(rule, accuracies([0.5, 0.6, 0.7])) == []
    (finding,) = fold(rule, accuracies([0.5, 0.7, 0.6, 0.7]))[1]
    assert (finding.step, finding.first_step, finding.limit) == (3, 1, 0.7)
    assert finding.evidence == {"best": 0.7, "best_step": 1, "passes_since": 2}


def test_another_mode_and_an_unknown_metric_are_not_inspected() -> None:
    assert fired(RULE, losses([1] * 10)) == []
    assert fired(EarlyStopping(mode="TRAIN", patience=3), losses([1] * 10)) == [3]
    unknown = EarlyStopping(metric="f1")
    assert not any(unknown.inspects(obs) for obs in accuracies([0.5]))
    assert EarlyStopping(metric="accuracy").inspects(accuracies([0.5])[0])
