from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, losses, matrices, tensor
from trainwarden.model import Mode, Observation, Severity
from trainwarden.rules.exploding_tensor import ExplodingTensor
from trainwarden.stats.catalog import Flag

RULE = ExplodingTensor()
TENSORS = (
    *matrices("a", "b", "c"),
    tensor("activation/relu", "activations", depth=1),
    tensor("input/0", "inputs"),
    tensor("output/0", "outputs"),
)


def run_of(*values: float, name: str = "a") -> list[Observation]:
    script = Script(*TENSORS)
    return [script.step(i, {name: v}) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "fired_at"),
    [
        pytest.param([1.0, 2.0, 3e38], [], id="large-is-not-infinite"),
        pytest.param([1.0, NAN], [1], id="nan"),
        pytest.param([1.0, INF], [1], id="infinity"),
        pytest.param([1.0, -INF], [1], id="minus-infinity-in-a-weight"),
        pytest.param([NAN, NAN, NAN], [0], id="once-per-episode"),
        pytest.param([NAN, 1.0, NAN], [0, 2], id="again-after-a-clean-step"),
    ],
)
def test_fires_at(values: list[float], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*values)) == fired_at


def test_sagemakers_vector_started_at_step_1_fires_at_step_2() -> None:
    assert fired(RULE, run_of(NAN, 1.0, NAN)[1:]) == [2]


def test_only_nan_ignores_infinity() -> None:
    rule = ExplodingTensor(only_nan=True)
    assert fired(rule, run_of(INF, INF)) == []
    assert fired(rule, losses([1.0, INF])) == []
    assert fired(rule, run_of(INF, NAN)) == [1]


def test_the_last_gradient_is_the_first_to_be_computed() -> None:
    obs = Script(*TENSORS).step(
        4, {"gradient/a": NAN, "gradient/b": NAN, "gradient/c": NAN, "a": 1.0}, loss=0.5
    )
    (finding,) = fold(RULE, [obs])[1]
    assert finding.tensor == "gradient/c"
    assert finding.evidence["count"] == 3
    assert finding.first_step == 4


@pytest.mark.parametrize(
    ("bad", "first"),
    [
        (("activation/relu", "output/0", "gradient/a"), "activation/relu"),
        (("input/0", "activation/relu", "gradient/a"), "input/0"),
        (("a", "activation/relu", "gradient/a"), "a"),
        (("output/0", "gradient/a"), "output/0"),
    ],
)
def test_names_the_first_tensor_in_the_order_of_computation(
    bad: tuple[str, ...], first: str
) -> None:
    obs = Script(*TENSORS).step(7, dict.fromkeys(bad, NAN), loss=NAN)
    assert fold(RULE, [obs])[1][0].tensor == first


def test_a_loss_comes_before_its_gradients() -> None:
    obs = Script(*TENSORS).step(7, {"gradient/a": NAN, "output/0": 1.0}, loss=INF)
    finding = fold(RULE, [obs])[1][0]
    assert finding.tensor == "loss"
    assert "inf" in finding.message


def test_says_which_saved_step_was_still_clean() -> None:
    script = Script(*TENSORS)
    run = [script.step(10, {"a": 1.0}), script.step(20, {"a": NAN})]
    (finding,) = fold(RULE, run)[1]
    assert finding.evidence["last_clean_step"] == 10
    assert "step 10 was still clean" in finding.message


class TestWhatIsNormal:
    def test_gradients_of_a_step_that_gradscaler_skipped_by_flag(self) -> None:
        script = Script(*TENSORS)
        run = [script.step(i, {"gradient/a": INF}, flags=Flag.SKIPPED) for i in range(20)]
        assert fired(RULE, run) == []

    def test_gradients_of_a_step_that_gradscaler_skipped_by_scalar(self) -> None:
        script = Script(*TENSORS)
        found_inf = {"optimizer": {"found_inf": 1.0}}
        run = [script.step(i, {"gradient/a": INF}, scalars=found_inf) for i in range(20)]
        assert fired(RULE, run) == []

    def test_a_weight_is_never_normal_even_at_a_skipped_step(self) -> None:
        found_inf = {"optimizer": {"found_inf": 1.0}}
        obs = Script(*TENSORS).step(3, {"a": NAN, "gradient/a": INF}, scalars=found_inf)
        assert fold(RULE, [obs])[1][0].tensor == "a"

    def test_minus_infinity_as_a_mask(self) -> None:
        obs = Script(*TENSORS).step(3, {"activation/relu": -INF, "output/0": -INF})
        assert fired(RULE, [obs]) == []

    def test_nan_in_an_activation_that_reaches_neither_loss_nor_gradient(self) -> None:
        script = Script(*TENSORS)
        obs = script.step(3, {"activation/relu": NAN, "gradient/a": 1.0}, loss=0.5)
        assert fired(RULE, [obs]) == []

    def test_but_not_if_neither_loss_nor_gradient_is_known(self) -> None:
        assert fired(RULE, [Script(*TENSORS).step(3, {"activation/relu": NAN})]) == [3]

    def test_and_not_if_the_user_asked_for_these_tensors(self) -> None:
        obs = Script(*TENSORS).step(3, {"activation/relu": NAN, "gradient/a": 1.0}, loss=0.5)
        assert fired(ExplodingTensor(tensor_regex=("activation/",)), [obs]) == [3]
        assert fired(ExplodingTensor(collection_names=("activations",)), [obs]) == [3]
        assert fired(ExplodingTensor(collection_names=("weights",)), [obs]) == []


def test_a_scale_that_never_recovers_fires_once_after_max_skipped() -> None:
    script = Script(*TENSORS)
    found_inf = {"optimizer": {"found_inf": 1.0, "loss_scale": 0.0}}
    run = [script.step(i, {"gradient/a": INF}, scalars=found_inf) for i in range(50)]
    (finding,) = fold(RULE, run)[1]
    assert (finding.step, finding.first_step) == (32, 0)


def test_a_non_finite_validation_loss_is_a_warning() -> None:
    (finding,) = fold(RULE, losses([NAN], mode=Mode.EVAL))[1]
    assert finding.severity is Severity.WARNING


def test_an_empty_tensor_and_no_tensor_at_all_are_fine() -> None:
    empty = tensor("e", "weights", (0,))
    assert fired(RULE, [Script(empty).step(0, {"e": np.empty(0)}), Script().step(1)]) == []


def test_rows_beyond_an_older_table_are_not_read() -> None:
    obs = Script(*TENSORS).step(0, {"a": NAN})
    shorter = Observation(0, obs.mode, 0, obs.time, obs.layout, obs.stats[:1])
    assert fired(RULE, [shorter]) == [0]
