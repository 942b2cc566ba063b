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


LOSSES = {f"loss@{step}": 2.0 for step in range(5, 12)}


def with_history(facts: dict[str, float], *bad: str, window: float = NAN) -> Observation:
    """A step with non-finite tensors ``bad`` and facts in ``history``."""
    scalars = {"history": facts}
    if window >= 0:
        scalars["window"] = {"nonfinite_step": window}
    return Script(*TENSORS).step(12, dict.fromkeys(bad, NAN), loss=NAN, scalars=scalars)


@pytest.mark.parametrize(
    ("first", "kind", "module", "operation", "words"),
    [
        ("operation/fc.log", "forward", "fc", "log", "made by log at module fc"),
        ("loss_operation/fc.sqrt", "loss", "fc", "sqrt", "made by sqrt in the loss after module"),
        ("data/fc.linear", "nan_input", "fc", "linear", "linear was given from outside the model"),
        ("operation/log", "forward", "", "log", "made by log"),
        ("input/0", "nan_input", "", "", "which began with input/0"),
        ("activation/relu", "forward", "", "", "which began with activation/relu"),
        ("gradient/b", "backward", "", "", "which began with gradient/b"),
        ("a", "weights", "", "", "which began with a"),
        ("loss", "loss", "", "", "the loss loss is nan"),
    ],
)
def test_tells_where_it_began_as_the_hook_ranked_it(
    first: str, kind: str, module: str, operation: str, words: str
) -> None:
    facts = {f"order@{first}": 0.0, "order@output/0": 1.0, **LOSSES}
    (finding,) = fold(RULE, [with_history(facts)])[1]
    assert finding.tensor == first
    assert finding.evidence["kind"] == kind
    assert finding.evidence["module"] == module
    assert finding.evidence["operation"] == operation
    assert finding.evidence["order"] == [first, "output/0"]
    assert words in finding.message
    assert finding.remedies


def test_without_ranks_the_first_captured_tensor_says_the_kind() -> None:
    kinds = {
        "a": "weights",
        "input/0": "nan_input",
        "activation/relu": "forward",
        "gradient/c": "backward",
    }
    for name, kind in kinds.items():
        obs = Script(*TENSORS).step(3, {name: NAN}, loss=1.0 if name == "gradient/c" else NAN)
        assert fold(RULE, [obs])[1][0].evidence["kind"] == kind


def test_tells_the_last_losses_and_the_last_step_that_was_clean() -> None:
    facts = {"order@operation/fc.log": 0.0, **LOSSES, "loss@12": NAN}
    (finding,) = fold(RULE, [with_history(facts)])[1]
    assert finding.evidence["losses"] == [[step, 2.0] for step in range(7, 12)]
    assert finding.evidence["last_clean_step"] == 11
    assert "the loss of step 11 was 2" in finding.message


def test_a_loss_that_grew_before_is_the_learning_rates_business() -> None:
    facts = {"order@operation/fc.linear": 0.0, **LOSSES, "loss@11": 3e6, "loss@12": INF}
    (finding,) = fold(RULE, [with_history(facts)])[1]
    assert "1.5e+06 times that of step 5" in finding.message
    assert "learning rate" in finding.remedies[0]


def test_the_first_bad_step_is_that_of_the_first_bad_loss() -> None:
    (finding,) = fold(RULE, [with_history({}, "a", window=9.0)])[1]
    assert (finding.step, finding.first_step) == (12, 9)
    assert "not finite since step 9" in finding.message


def test_ranks_say_nothing_about_tensors_that_were_not_asked_for() -> None:
    rule = ExplodingTensor(tensor_regex=("output/",))
    obs = with_history({"order@input/0": 0.0}, "input/0", "output/0")
    assert fold(rule, [obs])[1][0].tensor == "output/0"
