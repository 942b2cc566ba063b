from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.unchanged_tensor import UnchangedTensor

RULE = UnchangedTensor()
TENSORS = matrices("a", "b", "c")


def run_of(
    moves: Sequence[str],
    *,
    every: int = 10,
    gradients: Mapping[str, float] | None = None,
    loss: Sequence[float] | float = 2.3,
    rates: Sequence[float] | None = None,
) -> list[Observation]:
    """``moves[i]`` names the matrices that differ from the step before."""
    script, now, run = Script(*TENSORS), dict.fromkeys("abc", 1.0), []
    for i, moved in enumerate(moves):
        now = {n: v + 0.5 * (n in moved) for n, v in now.items()}
        pushed = {f"gradient/{n}": g for n, g in (gradients or dict.fromkeys("abc", 0.1)).items()}
        rate = {"optimizer": {"lr_0": rates[i]}} if rates else {}
        value = loss if isinstance(loss, float) else loss[i]
        run.append(script.step(i * every, {**now, **pushed}, loss=value, scalars=rate))
    return run


@pytest.mark.parametrize(
    ("moves", "fired_at"),
    [
        pytest.param(["abc"] * 9, [], id="all-move"),
        pytest.param([""] * 9, [20], id="nothing-moves-fires-once"),
        pytest.param(["ab"] * 9, [20], id="the-last-layer-rests-though-pushed"),
        pytest.param(["c"] * 9, [], id="only-the-head-moves-is-taken-for-fine-tuning"),
        pytest.param(["c"] * 13, [110], id="only-the-head-moves-and-nothing-is-learned"),
        pytest.param(["abc", "ab", "abc", "ab"] * 5, [], id="in-turns"),
        pytest.param([*[""] * 9, "abc", *[""] * 9], [20, 110], id="again-after-a-change"),
    ],
)
def test_fires_at(moves: list[str], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(moves)) == fired_at


def test_a_rest_must_span_enough_steps() -> None:
    assert fired(RULE, run_of([""] * 20, every=1)) == [11]
    assert fired(RULE, run_of([""] * 5, every=50)) == [100]


def test_a_matrix_must_rest_three_times_as_long_as_it_ever_did() -> None:
    moves = ["abc", *["ab"] * 5, "abc", *["ab"] * 30]
    assert fired(RULE, run_of(moves, every=1)) == [7 + 15]


def test_a_run_that_learns_is_left_alone() -> None:
    falling = [2.3 * 0.8**i for i in range(20)]
    assert fired(RULE, run_of(["c"] * 20, loss=falling)) == []
    assert fired(RULE, run_of([*["abc"] * 10, *[""] * 10], loss=falling)) == []


def test_the_output_layer_at_rest_is_told_even_if_the_rest_learns() -> None:
    falling = [2.3 * 0.8**i for i in range(20)]
    (finding,) = fold(RULE, run_of(["ab"] * 20, loss=falling))[1]
    assert finding.tensor == "c"
    assert "gradient is not 0" in finding.message


def test_a_missing_gradient_is_named_as_the_cause() -> None:
    (finding,) = fold(RULE, run_of([""] * 9, gradients=dict.fromkeys("abc", 0.0)))[1]
    assert "no gradient reaches it" in finding.message
    assert finding.evidence["resting"] == finding.evidence["trainable"] == 3


def test_steps_without_a_learning_rate_do_not_count() -> None:
    warm_up = [0.0] * 5 + [0.1] * 5
    assert fired(RULE, run_of([*[""] * 5, *["abc"] * 5], rates=warm_up)) == [20]
    cosine_end = [0.1] * 5 + [0.0] * 10
    assert fired(RULE, run_of([*["abc"] * 5, *[""] * 10], rates=cosine_end)) == []


def test_steps_that_gradscaler_skipped_do_not_count() -> None:
    script = Script(*TENSORS)
    skipped = {"optimizer": {"found_inf": 1.0}}
    run = [
        script.step(i * 10, dict.fromkeys("abc", 1.0), loss=2.3, scalars=skipped) for i in range(9)
    ]
    assert fired(RULE, run) == []


def test_frozen_matrices_vectors_and_nan_are_not_looked_at() -> None:
    tensors = (
        tensor("frozen", "weights", trainable=False),
        tensor("scale", "weights", (4,), kind="BatchNorm2d"),
        tensor("bias", "biases", (4,)),
        tensor("sick", "weights"),
    )
    script = Script(*tensors)
    values = {"frozen": 1.0, "scale": 1.0, "bias": 0.0, "sick": NAN}
    assert fired(RULE, [script.step(i * 10, values, loss=2.3) for i in range(20)]) == []


def test_evaluation_passes_without_any_optimizer_step_fire_at_the_third() -> None:
    script = Script(*TENSORS)
    passes = [script.step(0, loss=2.3, mode=Mode.EVAL) for _ in range(5)]
    (finding,) = fold(RULE, passes)[1]
    assert "optimizer has not taken one step" in finding.message
    trained = script.step(1, dict.fromkeys("abc", 1.0), loss=2.3)
    assert fired(RULE, [trained, *passes]) == []


class TestSageMakersMeaning:
    def test_ones_at_three_steps_fire_at_the_third_and_not_before(self) -> None:
        script = Script(tensor("ones", "custom"))
        run = [script.step(i, {"ones": 1.0}) for i in range(3)]
        rule = UnchangedTensor(collection_names=("custom",))
        assert fired(rule, run) == [2]
        assert fired(rule, run[:2]) == []

    def test_a_single_saved_step_does_not_fire(self) -> None:
        rule = UnchangedTensor(tensor_regex=("ones",))
        assert fired(rule, [Script(tensor("ones", "custom")).step(5, {"ones": 1.0})]) == []

    @pytest.mark.parametrize(
        ("change", "rtol", "fires"),
        [(1e-6, 1e-5, True), (1e-4, 1e-5, False), (1e-6, 0.0, False), (0.0, 0.0, True)],
    )
    def test_tolerances(self, change: float, rtol: float, fires: bool) -> None:  # noqa: FBT001 - a table
        script = Script(tensor("w", "weights"))
        run = [script.step(i, {"w": np.float32(1.0 + i * change)}) for i in range(3)]
        rule = UnchangedTensor(collection_names=("weights",), rtol=rtol)
        assert bool(fired(rule, run)) is fires

    def test_nan_counts_only_with_equal_nan(self) -> None:
        script = Script(tensor("w", "weights", (2,)))
        run = [script.step(i, {"w": [NAN, 1.0]}) for i in range(3)]
        assert fired(UnchangedTensor(collection_names=("weights",)), run) == []
        assert fired(UnchangedTensor(collection_names=("weights",), equal_nan=True), run) == [2]


@pytest.mark.parametrize(("gradient", "fired_at"), [(0.0, []), (0.1, [50])])
def test_weights_that_moved_until_their_gradient_died_rest_for_another_reason(
    gradient: float, fired_at: list[int]
) -> None:
    script = Script(*matrices("a", "b"))
    run = []
    for i in range(12):
        values = dict.fromkeys("ab", 1.0 + min(i, 3))
        values |= {f"gradient/{n}": 0.1 if i < 3 else gradient for n in "ab"}
        run.append(script.step(i * 10, values, loss=2.3))
    assert fired(RULE, run) == fired_at


class TestModelsThatAreTrainedOneAfterTheOther:
    """Six models of one matrix each, of which one is called at a time; the loss starts anew."""

    NAMES = "abcdef"

    def run(self, *, turns: str, entered: bool, every: int = 10) -> list[Observation]:
        """``turns`` names the matrix that moves at each saved step; only it has a gradient."""
        tensors = [
            replace(t, depth=i if entered else -1) for i, t in enumerate(matrices(*self.NAMES))
        ]
        script, now, run = Script(*tensors), dict.fromkeys(self.NAMES, 1.0), []
        for i, name in enumerate(turns):
            now[name] += 0.5
            run.append(script.step(i * every, {**now, f"gradient/{name}": 0.1}, loss=2.3))
        return run

    def test_what_the_forward_pass_does_not_enter_waits(self) -> None:
        turns = "a" * 15 + "b" * 15 + "c" * 15
        assert fired(RULE, self.run(turns=turns, entered=False)) == []

    def test_what_moved_before_waits_again(self) -> None:
        turns = "abcd" + "e" * 30
        assert fired(RULE, self.run(turns=turns, entered=True)) == []

    def test_what_is_entered_and_never_moved_does_not_wait(self) -> None:
        assert fired(RULE, self.run(turns="a" * 30, entered=True)) == [110]
