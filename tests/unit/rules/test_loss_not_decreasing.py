from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.loss_not_decreasing import LossNotDecreasing

RULE = LossNotDecreasing()
RNG = np.random.default_rng(0)
NOISE = 1 + 0.02 * RNG.standard_normal(1000)


def falling(steps: int, rate: float) -> list[float]:
    return [2.3 * (1 - rate) ** i * NOISE[i] for i in range(steps)]


@pytest.mark.parametrize(
    ("values", "fired_at"),
    [
        pytest.param([2.3] * 70, [], id="not-yet"),
        pytest.param([2.3] * 400, [70], id="flat-fires-once"),
        pytest.param(falling(400, 0.001), [], id="slow-but-sure"),
        pytest.param(falling(400, 0.0), [70], id="flat-but-for-noise"),
        pytest.param([2.3, *[1.0] * 400], [], id="fell-at-once-and-stays"),
        pytest.param([2.3 + 0.01 * i for i in range(300)], [], id="rising-is-another-matter"),
        pytest.param([2.3] * 30 + [30.0] * 20, [32], id="runs-away"),
        pytest.param([2.3, 2.3, 50.0] * 10, [], id="spikes-are-no-divergence"),
        pytest.param([0.0] * 300, [], id="zero"),
        pytest.param([-1.0] * 300, [], id="negative-surrogate"),
        pytest.param([0.1, -0.1] * 150, [], id="surrogate-of-either-sign"),
        pytest.param([NAN] * 300, [], id="nan"),
        pytest.param([], [], id="empty"),
    ],
)
def test_fires_at(values: list[float], fired_at: list[int]) -> None:
    assert fired(RULE, losses(values)) == fired_at


@pytest.mark.parametrize(("every", "fired_at"), [(1, 70), (10, 70), (50, 200), (200, 800)])
def test_flat_is_found_at_any_save_interval(every: int, fired_at: int) -> None:
    assert fired(RULE, losses([2.3] * 400, every=every)) == [fired_at]


def test_a_dense_start_does_not_count_as_the_level_later() -> None:
    script = Script()
    saved = [*range(10), 50, 100, 150, 200, 250]
    run = [script.step(i, loss=2.3 - 0.0008 * i) for i in saved]  # 3.5 % in 100 steps
    assert fired(RULE, run) == []
    flat = [script.step(i, loss=2.3) for i in saved]
    assert fired(RULE, flat) == [200]


def test_a_loss_that_came_back_to_its_start_is_not_flat() -> None:
    assert fired(RULE, losses([2.3] * 5 + [1.0] * 60 + [2.3] * 300)) == []


def test_the_clock_does_not_run_while_the_learning_rate_rises() -> None:
    script = Script()
    run = [
        script.step(i, loss=2.3, scalars={"optimizer": {"lr_0": min(i, 200) * 1e-5}})
        for i in range(400)
    ]
    assert fired(RULE, run) == [270]


def test_adversaries_with_an_optimizer_each_may_keep_their_loss() -> None:
    script = Script()
    two = {"optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}
    assert fired(RULE, [script.step(i, loss=1.386, scalars=two) for i in range(300)]) == []


class TestConvergedFromTheStart:
    """Fine-tuning and resumed runs begin low and have nowhere to fall."""

    def labelled(self, loss: float) -> list[Observation]:
        script = Script()
        classes = {"label/0": dict.fromkeys(range(10), 6)}
        return [script.step(i, loss=loss, labels=classes) for i in range(300)]

    def regression(self, loss: float) -> list[Observation]:
        script = Script(tensor("label/0", "labels", (4,)))
        targets = {"label/0": [-1.0, 1.0, -1.0, 1.0]}
        return [script.step(i, targets, loss=loss) for i in range(300)]

    def test_a_classifier_far_below_a_uniform_guess(self) -> None:
        assert fired(RULE, self.labelled(0.4)) == []
        assert fired(RULE, self.labelled(2.3)) == [70]

    def test_a_regression_far_below_the_variance_of_its_targets(self) -> None:
        assert fired(RULE, self.regression(0.05)) == []
        assert fired(RULE, self.regression(1.0)) == [70]


CLASSES = {"objective": {"cross_entropy.classes": 10.0, "cross_entropy.accuracy": 0.1}}


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


def classified(
    values: Sequence[float], facts: Mapping[str, float] | None = None
) -> list[Observation]:
    script = Script()
    scalars = {"objective": {**CLASSES["objective"], **(facts or {})}}
    return [script.step(i, loss=v, scalars=scalars) for i, v in enumerate(values)]


class TestATrivialLoss:
    """ln 10 = 2.303 is what a network reaches that knows nothing but the number of classes."""

    RESTS: Sequence[float] = [3.2 - 0.1 * i for i in range(9)] + [2.31] * 200

    def test_is_no_progress_wherever_the_start_was(self) -> None:
        assert told(classified(self.RESTS)) == [(150, "trivial")]
        assert told(losses(self.RESTS)) == []

    @pytest.mark.parametrize(
        "facts",
        [
            {"cross_entropy.accuracy": 0.5},
            {"cross_entropy.weighted": 1.0},
            {"cross_entropy.reduction_sum": 1.0},
            {"cross_entropy.target_size": 10.0},
            {"nll_loss.classes": 10.0},
            {"cross_entropy.classes": 12.0},
        ],
    )
    def test_not_where_the_guess_is_unknown_or_no_guess(self, facts: dict[str, float]) -> None:
        assert told(classified(self.RESTS, facts)) == []

    def test_not_while_it_still_falls(self) -> None:
        falling = [3.2 - 0.1 * i for i in range(9)] + [2.7 - 0.002 * i for i in range(180)]
        assert told(classified(falling)) == []


class TestAPlateauWhileAllWeightsMove:
    """Parities and the like: nothing is learned for hundreds of steps, then all of it."""

    def run(
        self,
        values: Sequence[float],
        *,
        moves: Mapping[str, float] | None = None,
        every: int = 1,
        classes: float = 2.0,
    ) -> list[Observation]:
        """``moves``: share of its size by which a matrix moves between two saved steps."""
        script, run = Script(*matrices("a", "b")), []
        facts = {"objective": {"cross_entropy.classes": classes, "cross_entropy.accuracy": 0.5}}
        for i, loss in enumerate(values):
            weights = {n: 1 + m * (i % 2) for n, m in (moves or {"a": 0.01, "b": 0.05}).items()}
            run.append(script.step(i * every, weights, loss=loss, scalars=facts))
        return run

    REST: Sequence[float] = [0.694] * 500

    def test_has_patience(self) -> None:
        assert told(self.run(self.REST)) == [(300, "flat")]
        assert told(self.run(self.REST[:290])) == []

    def test_has_none_where_a_matrix_hardly_moves(self) -> None:
        assert told(self.run(self.REST, moves={"a": 0.0005, "b": 0.05})) == [(70, "flat")]

    def test_holds_moves_against_the_steps_between_saved_ones(self) -> None:
        moves = {"a": 0.002, "b": 0.05}  # a random walk of 0.1 % a step is 0.3 % in ten
        assert told(self.run(self.REST[:200], moves=moves, every=10)) == [(70, "flat")]
        assert told(self.run(self.REST[:30], every=10)) == []

    def test_has_none_above_the_start_or_a_guess(self) -> None:
        assert told(self.run([0.72 + 0.02 * (i > 30) for i in range(300)])) == [(70, "flat")]
        assert told(self.run([0.75] * 300)) == [(70, "flat")]

    def test_waits_for_losses_that_have_just_begun_to_fall(self) -> None:
        leaving = [0.694] * 285 + [0.694 - 0.0002 * i for i in range(1, 400)]
        assert told(self.run(leaving)) == []

    def test_what_runs_away_is_told_at_once(self) -> None:
        assert told(self.run([0.694] * 80 + [20.0] * 20)) == [(82, "diverged")]


def test_what_fell_at_once_by_little_may_rest_there() -> None:
    assert fired(RULE, losses([1.10, 1.09, 1.08, *[1.0] * 300])) == []
    assert fired(RULE, losses([1.02, 1.01, 1.0, *[1.0] * 300])) == [70]


def test_the_mean_of_all_steps_counts_where_it_is_known() -> None:
    script, saved = Script(), [*range(10), *range(50, 400, 50)]

    def run(mean: float) -> list[Observation]:
        return [
            script.step(
                i,
                loss=2.3 + 0.01 * (-1) ** i,
                scalars={"window": {"steps": 50.0, "loss_mean": mean}} if i >= 50 else None,
            )
            for i in saved
        ]

    assert told(run(2.3)) == [(100, "flat")]
    assert told(run(2.2)) == []


@pytest.mark.parametrize(
    ("name", "facts", "loss", "told_at"),
    [
        ("binary_cross_entropy", {"target_std": 0.5, "weighted": 0.0}, 0.69, [70]),
        ("binary_cross_entropy", {"target_std": 0.5, "weighted": 0.0}, 0.66, []),
        ("binary_cross_entropy", {"target_std": 0.3, "weighted": 0.0}, 0.33, [70]),
        ("binary_cross_entropy", {"target_std": 0.3, "weighted": 1.0}, 0.30, [70]),
        ("binary_cross_entropy", {"target_std": 0.3, "weighted": 0.0}, 0.30, []),
        ("cross_entropy", {"classes": 10.0, "accuracy": 0.5}, 2.0, []),
        ("cross_entropy", {"classes": 10.0, "accuracy": 0.2}, 2.0, [70]),
        ("cross_entropy", {"classes": 10.0, "accuracy": 0.5}, 2.3, [70]),
    ],
)
def test_a_level_better_than_a_guess_may_rest(
    name: str, facts: Mapping[str, float], loss: float, told_at: list[int]
) -> None:
    script = Script()
    scalars = {"objective": {f"{name}.{what}": value for what, value in facts.items()}}
    run = [script.step(i, loss=loss, scalars=scalars) for i in range(100)]
    assert fired(RULE, run) == told_at


def test_targets_that_are_all_alike_are_an_adversarys() -> None:
    script, name = Script(), "binary_cross_entropy_with_logits.target_std"

    def run(spread: float) -> list[Observation]:
        return [
            script.step(i, loss=0.69, scalars={"objective": {name: spread}}) for i in range(100)
        ]

    assert fired(RULE, run(0.5)) == [70]
    assert fired(RULE, run(0.0)) == []


def test_a_loss_that_grows_with_its_targets_has_not_run_away() -> None:
    script = Script()

    def run(spread: float) -> list[Observation]:
        return [
            script.step(
                i,
                loss=0.01 if i < 20 else 0.5,
                scalars={"objective": {"mse_loss.target_std": spread}},
            )
            for i in range(40)
        ]

    assert told(run(0.1)) == [(22, "diverged")]
    assert told(run(2.0)) == []


def test_looks_at_one_mode_and_at_matching_losses_only() -> None:
    assert fired(RULE, losses([2.3] * 300, mode=Mode.EVAL)) == []
    assert fired(LossNotDecreasing(mode="EVAL"), losses([2.3] * 300, mode=Mode.EVAL)) == [70]
    script = Script()
    run = [
        script.step(i, scalars={"losses": {"loss": 2.3 / (i + 1), "aux": 1.0}}) for i in range(300)
    ]
    assert fired(RULE, run) == []
    assert fired(LossNotDecreasing(tensor_regex=("aux",)), run) == [70]


def test_non_finite_losses_are_passed_over() -> None:
    values = [2.3 if i % 3 else INF for i in range(301)]
    assert fired(RULE, losses(values)) == [71]


def test_the_finding_carries_the_numbers() -> None:
    (finding,) = fold(RULE, losses([2.3] * 5 + [2.28] * 300))[1]
    assert finding.value == pytest.approx(2.28)
    assert finding.limit == pytest.approx(2.28 * (1 - 0.03 * 70 / 300))
    assert finding.first_step == 0
    assert finding.evidence["start"] == pytest.approx(2.28, abs=0.03)


def oracle(values: Sequence[float]) -> list[int]:
    """The criterion computed anew from the whole history at each step."""
    for now in range(3, len(values)):
        seen = values[: now + 1]
        first, start = seen[:15], median(seen[:15])
        if now >= 15 or now == len(first) - 1:
            if median(seen[-5:]) > 10 * start:
                return [now]
            last = [v for i, v in enumerate(seen) if 2 * (now - i) <= now][-25:]
            fall, least = 1 - median(last) / start, 0.03 * min(1, now / 300)
            spread = [float(np.median(np.abs(np.array(v) - median(v)))) for v in (first, last)]
            if len(last) < 10:
                spread[1] = max(spread)
            parts = [(1.4826 * s) ** 2 / len(v) for s, v in zip(spread, (first, last), strict=True)]
            error = sum(parts) ** 0.5 / start
            levels = [median(seen[i - 25 : i]) for i in range(25, len(seen) + 1)]
            lower = bool(levels) and min(levels) < 0.85 * start
            lower = lower or error >= 0.1 or median(last) < 0.7 * seen[0]
            opening = 0.95 * sum(seen[:3]) / 3 - 2 * 1.4826 * spread[0] / 3**0.5
            lower = lower or median(last) < opening or median(last) < 0.85 * start
            if (
                now >= 70
                and fall + error < least
                and fall >= -min(0.2, 3 * error) - 0.03
                and not lower
            ):
                return [now]
    return []


@settings(deadline=None, max_examples=60)
@given(st.floats(-0.004, 0.02), st.floats(0.0, 0.3), st.integers(0, 10**6), st.integers(0, 260))
def test_agrees_with_the_definition(rate: float, noise: float, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    values = [
        float(2.3 * (1 - rate) ** i * np.exp(noise * rng.standard_normal())) for i in range(steps)
    ]
    assert fired(RULE, losses(values)) == oracle(values)


class TestSageMakersMeaning:
    RULE = LossNotDecreasing(num_steps=10)

    def test_equal_counts_as_not_decreasing_and_the_next_check_is_num_steps_later(self) -> None:
        run = losses([0.3, 0.33, 0.31, 0.30, 0.28], every=4)
        assert fired(self.RULE, run) == [12]

    def test_with_diff_percent_too_little_decrease_fires(self) -> None:
        # The public test expects 24 as the first firing, against its own documentation: the loss
        # has not fallen at all at 12. The documented meaning is taken.
        run = losses([0.3, 0.33, 0.31, 0.30, 0.28, 0.2, 0.42], every=4)
        assert fired(LossNotDecreasing(num_steps=10, diff_percent=20), run) == [12, 24]

    def test_saved_every_3_steps_it_compares_with_the_newest_10_or_more_older(self) -> None:
        script = Script()
        values = {0: 9.0, 3: 1.0, 6: 8.0, 9: 8.0, 12: 7.0, 15: 1.0, 18: 6.0, 21: 6.0, 24: 7.0}
        run = [script.step(s, loss=v) for s, v in values.items()]
        assert fired(self.RULE, run) == [24]  # 12 against 0 falls, 24 against 12 does not

    def test_a_steady_fall_is_quiet_and_the_state_stays_small(self) -> None:
        state, found = fold(
            LossNotDecreasing(num_steps=500), losses([1 / (i + 1) for i in range(2000)])
        )
        assert found == []
        assert len(state["last"]) <= 16
