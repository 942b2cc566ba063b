from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.runs import INF, NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.overfit import Overfit

RULE = Overfit()
Pair = tuple[float, float]
START: Pair = (2.3, 2.3)


def run_of(*passes: Pair, saves: int = 2) -> list[Observation]:
    """(training loss, validation loss) of each epoch of ten steps."""
    script, run = Script(), []
    for epoch, (training, validation) in enumerate(passes):
        run += [script.step(epoch * 10 + i * 10 // saves, loss=training) for i in range(saves)]
        run.append(script.step(epoch * 10 + 9, loss=validation, mode=Mode.EVAL))
    return run


@pytest.mark.parametrize(
    ("passes", "fired_at"),
    [
        pytest.param([START, (1.0, 1.0), *[(0.5, 1.2)] * 3], [49], id="third-pass-in-a-row"),
        pytest.param([START, (1.0, 1.0), *[(0.5, 1.2)] * 2], [], id="two-are-not-enough"),
        pytest.param([START, (1.0, 1.0), *[(0.5, 1.2)] * 9], [49], id="once"),
        pytest.param([START, (1.0, 1.0), *[(0.5, 1.05)] * 9], [], id="rise-within-the-noise"),
        pytest.param([START, (1.0, 1.0), *[(1.1, 1.3)] * 9], [], id="training-gets-worse-too"),
        pytest.param([START, (0.1, 1.0), *[(0.05, 1.0)] * 9], [], id="a-gap-alone-is-normal"),
        pytest.param([START, (0.2, 0.1), *[(0.1, 0.15)] * 9], [], id="noise-of-a-small-best"),
        pytest.param(
            [START, (1, 1), (0.5, 1.2), (0.5, 1.2), (0.4, 0.9), (0.3, 1.1), (0.3, 1.1)],
            [],
            id="a-new-best-resets",
        ),
        pytest.param([START, (1, 1), *[(0.5, NAN)] * 9], [], id="nan-is-passed-over"),
        pytest.param([START, (1, 1), *[(0.5, INF)] * 9], [], id="infinity-is-passed-over"),
    ],
)
def test_fires_at(passes: list[Pair], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*passes)) == fired_at


def test_a_validation_loss_that_jumps_up_and_down_is_no_rise() -> None:
    jumping = [1.0, 1.5, 0.8, 1.6, 0.9, 1.4, 0.8, 1.5, 1.2, 1.3, 1.2, 1.4] * 2
    run = run_of(START, *[(2.0 * 0.95**i, v) for i, v in enumerate(jumping)])
    assert fired(RULE, run) == []


def test_the_training_loss_must_have_fallen_by_more_than_a_little() -> None:
    assert fired(RULE, run_of(START, (1.0, 1.0), *[(0.95, 1.3)] * 9)) == []
    assert fired(RULE, run_of(START, (1.0, 1.0), *[(0.85, 1.3)] * 9)) == [49]


def test_the_finding_names_the_best_pass() -> None:
    (finding,) = fold(RULE, run_of(START, (1.0, 1.0), *[(0.5, 1.2)] * 3))[1]
    assert finding.first_step == 19
    assert finding.value == pytest.approx(1.2)
    assert finding.limit == pytest.approx(1.1)
    assert "20% above its best of 1 at step 19" in finding.message


def test_a_training_loss_of_zero_has_a_gap_that_json_can_hold() -> None:
    """The gap over a loss of 0, and over one that is nearly 0, has no number."""
    for least in (0.0, 5e-324):
        run = run_of(START, *[(least, 1.0)] * 9)
        for rule in (RULE, Overfit(ratio_threshold=0.1, patience=1)):
            for finding in fold(rule, run)[1]:
                assert json.dumps([finding.value, finding.evidence], allow_nan=False)
    (finding, *_) = fold(Overfit(ratio_threshold=0.1, patience=1), run_of(*[(0.0, 1.0)] * 9))[1]
    assert finding.value == 1e9
    assert "loss of 0 for 2 passes" in finding.message


def test_validation_before_any_training_is_passed_over() -> None:
    sanity = Script().step(0, loss=2.3, mode=Mode.EVAL)
    assert fired(RULE, [sanity, sanity, sanity]) == []


def test_inspects_nothing_without_validation() -> None:
    train, validation = Script().step(0, loss=1.0), Script().step(0, loss=1.0, mode=Mode.EVAL)
    assert not RULE.inspects(train)
    assert RULE.inspects(validation)


def test_like_is_compared_with_like() -> None:
    script, run = Script(), []
    for epoch in range(9):
        both = {"losses": {"loss": 1e-4, "mse": 1.0}}
        run.append(script.step(epoch * 10, scalars=both))
        only = {"losses": {"mse": 1.0}}
        run.append(script.step(epoch * 10 + 9, scalars=only, mode=Mode.EVAL))
    assert fired(RULE, run) == []
    assert fired(Overfit(ratio_threshold=0.1), run) == []


@given(st.lists(st.tuples(st.floats(0.01, 3), st.floats(0.01, 3)), max_size=20))
def test_the_number_of_saved_steps_in_an_epoch_changes_nothing(passes: Sequence[Pair]) -> None:
    few, many = run_of(*passes, saves=1), run_of(*passes, saves=5)
    assert fired(RULE, few) == fired(RULE, many)


class TestSageMakersMeaning:
    @pytest.mark.parametrize(
        ("passes", "fired_at"),
        [
            pytest.param([(1.0, 1.2)] * 2, [19], id="more-than-patience-passes"),
            pytest.param([(1.0, 1.2)], [], id="patience-itself-is-fine"),
            pytest.param([(1.0, 1.1)] * 9, [], id="the-limit-itself-is-fine"),
            pytest.param([(1.0, 1.2), (1.0, 1.0), (1.0, 1.2)], [], id="a-good-pass-resets"),
            pytest.param([(0.0, 0.2)] * 2, [19], id="training-loss-zero"),
        ],
    )
    def test_fires_at(self, passes: list[Pair], fired_at: list[int]) -> None:
        assert fired(Overfit(ratio_threshold=0.1000001), run_of(*passes)) == fired_at


def told(*passes: Pair, labels: bool = False) -> list[int]:
    """Fire at, where validation says how many are right or not."""
    run = run_of(*passes)
    for obs in run if labels else ():
        obs.scalars["objective"] = {"cross_entropy.accuracy": 0.1}  # type: ignore[index]
    return fired(RULE, run)


def test_what_never_helped_in_validation_is_told_though_that_does_not_rise() -> None:
    useless = [START, *[(0.1, 2.2)] * 9]
    assert told(*useless) == [59]
    assert told(*useless, labels=True) == []  # DAT006 speaks of labels


@pytest.mark.parametrize(
    ("best", "said"),
    [(0.0, "is 1, above its best of 0"), (-2.0, "is 1, 150% above its best of -2"),
     (0.5, "is 1, 100% above its best of 0.5")],
)  # fmt: skip
def test_it_is_said_how_far_above_its_best_a_loss_is(best: float, said: str) -> None:
    (found,) = fold(RULE, run_of((2.3, 2.3), (1.0, best), *[(-3.0, 1.0)] * 9))[1]
    assert said in found.message


@pytest.mark.parametrize(
    "passes",
    [
        pytest.param([START, *[(0.1, 2.2)] * 4], id="few-passes"),
        pytest.param([START, (2.0, 1.5), *[(0.1, 1.6)] * 9], id="validation-once-came-down"),
        pytest.param([START, *[(0.4, 2.2)] * 9], id="training-learned-less"),
        pytest.param([(2.3, -1.0), *[(0.1, -1.0)] * 9], id="a-loss-below-zero"),
    ],
)
def test_a_gap_that_may_close_is_not(passes: list[Pair]) -> None:
    assert told(*passes) == []
