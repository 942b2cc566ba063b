from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.high_learning_rate import HighLearningRate

RULE = HighLearningRate(threshold=0.1)


def rates(values: Sequence[float], name: str = "lr_0") -> list[Observation]:
    script = Script()
    return [script.step(i, scalars={"optimizer": {name: v}}) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "fired_at"),
    [
        pytest.param([0.1] * 3, [], id="the-limit-itself-is-fine"),
        pytest.param([0.05, 0.2, 0.3], [1], id="once-while-above"),
        pytest.param([0.2, 0.1, 0.2], [0, 2], id="again-after-it-was-below"),
        pytest.param([NAN, 0.05, INF], [2], id="nan-is-not-above-and-infinity-is"),
        pytest.param([], [], id="empty"),
    ],
)
def test_fires_at(values: Sequence[float], fired_at: list[int]) -> None:
    assert fired(RULE, rates(values)) == fired_at


def test_each_group_of_each_optimizer_the_highest_first() -> None:
    facts = {"lr_0": 0.2, "lr_1": 0.01, "1.lr_0": 0.5, "weight_decay_0": 9.0}
    run = [Script().step(0, scalars={"optimizer": facts})]
    assert [f.tensor for f in fold(RULE, run)[1]] == ["1.lr_0", "lr_0"]
    assert [f.tensor for f in fold(HighLearningRate(tensor_regex=("lr_0",)), run)[1]] == ["lr_0"]


def test_inspects_training_steps_with_a_rate() -> None:
    assert RULE.inspects(rates([0.1])[0])
    assert not RULE.inspects(rates([0.1], "weight_decay_0")[0])
    evaluation = Script().step(0, mode=Mode.EVAL, scalars={"optimizer": {"lr_0": 0.1}})
    assert not RULE.inspects(evaluation)
