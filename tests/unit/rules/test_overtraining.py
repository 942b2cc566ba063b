from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses
from trainwarden.model import Mode, Observation
from trainwarden.rules import build, find
from trainwarden.rules.overtraining import Overtraining

RULE = Overtraining()
NOISE = np.random.default_rng(0).standard_normal(200)
FALLING = [2.3 * 0.9**i for i in range(60)]
VALLEY = [2.3 - 0.2 * i for i in range(9)] + [0.7 + 0.03 * i for i in range(1, 52)]


def run_of(training: Sequence[float], validation: Sequence[float]) -> list[Observation]:
    """One saved training step and one pass for each epoch of ten steps."""
    script, run = Script(), []
    for epoch, (train, value) in enumerate(zip(training, validation, strict=True)):
        run.append(script.step(epoch * 10, loss=train))
        run.append(script.step(epoch * 10 + 9, loss=value, mode=Mode.EVAL))
    return run


@pytest.mark.parametrize(
    ("training", "validation", "fired_at"),
    [
        pytest.param(FALLING, VALLEY, [219], id="long-past-the-best"),
        pytest.param(FALLING, FALLING, [], id="both-fall"),
        pytest.param(FALLING[:16], VALLEY[:16], [], id="not-for-long"),
        pytest.param([2.3] * 60, VALLEY, [], id="training-has-not-gone-on"),
        pytest.param(FALLING, [max(0.8, v) for v in FALLING], [], id="rests-at-its-best"),
        pytest.param(
            FALLING, [max(0.8, v) + 0.1 * NOISE[i] for i, v in enumerate(FALLING)], [], id="noise"
        ),
        pytest.param(FALLING, [*FALLING[:30], *[0.15] * 30], [], id="a-tenth-of-the-way-is-little"),
        pytest.param(FALLING, [NAN, INF] * 30, [], id="nothing-finite"),
        pytest.param([], [], [], id="empty"),
    ],
)
def test_fires_at(
    training: Sequence[float], validation: Sequence[float], fired_at: list[int]
) -> None:
    assert fired(RULE, run_of(training, validation)) == fired_at


def test_the_finding_names_the_best_pass() -> None:
    (finding,) = fold(RULE, run_of(FALLING, VALLEY))[1]
    assert finding.first_step == finding.evidence["best_step"] == 109
    assert finding.evidence["best"] == pytest.approx(0.76)
    assert finding.limit == pytest.approx(0.76 + 0.1 * (2.3 - 0.76))


def test_inspects_validation_passes_only() -> None:
    train, validation = Script().step(0, loss=1.0), Script().step(0, loss=1.0, mode=Mode.EVAL)
    assert not RULE.inspects(train)
    assert RULE.inspects(validation)


class TestSageMakersMeaning:
    RULE = build("Overtraining", dict(find("Overtraining").meta.sagemaker or {}))

    @pytest.mark.parametrize(
        ("values", "fired_at"),
        [
            pytest.param([1.0] * 5, [], id="four-without-improvement"),
            pytest.param([1.0] * 7, [5, 6], id="five-and-each-after"),
            pytest.param([1.0, 0.95, 0.92, 0.91, 0.905, 0.901], [5], id="less-than-delta"),
            pytest.param([1.0 - 0.11 * i for i in range(9)], [], id="improving-by-more-than-delta"),
            pytest.param([1.0, NAN, 1.0, NAN, 1.0, 1.0, 1.0, 1.0], [7], id="nan-does-not-count"),
        ],
    )
    def test_the_training_loss(self, values: Sequence[float], fired_at: list[int]) -> None:
        assert fired(self.RULE, losses(values)) == fired_at

    def test_the_validation_loss_has_twice_the_patience(self) -> None:
        assert fired(self.RULE, losses([1.0] * 12, mode=Mode.EVAL)) == [10, 11]

    def test_one_parameter_given_leaves_the_others_at_their_defaults(self) -> None:
        assert fired(Overtraining(patience_train=2), losses([1.0] * 4)) == [2, 3]
        assert fired(Overtraining(delta=0.0), losses([1.0, 0.99, 0.98, 0.97, 0.96, 0.95])) == []
