from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.loss_misuse import LossMisuse

RULE = LossMisuse()
LOGITS = {
    "classes": 10.0, "rows_sum_to_one": 0.0, "log_rows_sum_to_one": 0.0, "inside_unit": 0.2,
    "input_min": -3.0, "input_max": 4.0, "broadcast": 0.0, "accuracy": 0.1, "input_size": 640.0,
    "target_size": 64.0,
}  # fmt: skip
PROBABLE = {"rows_sum_to_one": 1.0, "inside_unit": 1.0, "input_min": 0.0, "input_max": 1.0}
INSIDE = {"inside_unit": 1.0, "input_min": 0.1, "input_max": 0.9}
MIXED = {"label/0": {0: 20, 1: 20, 2: 24}}


def run_of(
    function: str,
    facts: Mapping[str, float] | Sequence[Mapping[str, float]],
    *,
    steps: int = 40,
    every: int = 1,
    loss: float = 2.3,
    **more: Any,
) -> list[Observation]:
    """``facts`` deviate from those of logits, the same at each step or one dict a step."""
    run = []
    for i in range(steps):
        own = facts if isinstance(facts, Mapping) else facts[i]
        known = {f"{function}.{name}": value for name, value in {**LOGITS, **own}.items()}
        scalars = {"objective": known, **more.get("scalars", {})}
        rest = {name: value for name, value in more.items() if name != "scalars"}
        run.append(Script().step(i * every, scalars=scalars, loss=loss, **rest))
    return run


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


CROSSED = {"broadcast": 1.0, "input_size": 64.0, "target_size": 64.0}
ONE = {**INSIDE, "input_min": 1.0, "input_max": 1.0}
WRONG = {"accuracy": 0.01}


@pytest.mark.parametrize(
    ("function", "facts", "expected"),
    [
        pytest.param("cross_entropy", {}, [], id="logits"),
        pytest.param("cross_entropy", PROBABLE, [(1, "double_softmax")], id="double-softmax"),
        pytest.param("cross_entropy:1", PROBABLE, [(1, "double_softmax")], id="of-a-second-head"),
        pytest.param("cross_entropy", {"rows_sum_to_one": 0.9}, [], id="some-rows-by-chance"),
        pytest.param("cross_entropy", {"log_rows_sum_to_one": 1.0}, [],
                     id="log-softmax-first-changes-nothing"),
        pytest.param("cross_entropy", INSIDE, [(20, "sigmoid_to_cross_entropy")], id="sigmoid"),
        pytest.param("cross_entropy", [INSIDE] * 15 + [{}] * 25, [], id="small-at-the-start"),
        pytest.param("cross_entropy", {"classes": 1.0}, [(1, "single_class")], id="one-class"),
        pytest.param("nll_loss", {"log_rows_sum_to_one": 1.0, "input_max": 0.0}, [],
                     id="logarithms"),
        pytest.param("nll_loss", PROBABLE, [(1, "probabilities_to_nll")], id="probabilities"),
        pytest.param("nll_loss", {}, [(1, "logits_to_nll")], id="logits-to-nll"),
        pytest.param("nll_loss", {"input_max": -0.1}, [(1, "logits_to_nll")],
                     id="a-softmax-over-the-batch"),
        pytest.param("nll_loss", {"log_rows_sum_to_one": 0.3}, [], id="half-precision-rounds"),
        pytest.param("binary_cross_entropy", ONE, [(1, "softmax_of_one")], id="softmax-of-one"),
        pytest.param("binary_cross_entropy", {**ONE, "input_min": 0.9}, [], id="sure-of-itself"),
        pytest.param("binary_cross_entropy", {**ONE, "input_size": 1.0}, [], id="sure-of-one-row"),
        pytest.param("kl_div", PROBABLE, [(1, "probabilities_to_kl")], id="kl-of-probabilities"),
        pytest.param("kl_div", {"input_max": 0.0}, [], id="kl-of-logarithms"),
        pytest.param("mse_loss", CROSSED, [(1, "broadcast")], id="broadcast"),
        pytest.param("mse_loss", {**CROSSED, "target_size": 1.0}, [], id="one-target-for-all"),
        pytest.param("mse_loss", {**CROSSED, "target_size": 640.0}, [], id="on-purpose"),
        pytest.param("mse_loss", {**CROSSED, "input_size": 1.0, "target_size": 1.0}, [],
                     id="a-batch-of-one"),
        pytest.param("mse_loss", PROBABLE, [], id="probabilities-may-be-regressed"),
        pytest.param("binary_cross_entropy", INSIDE, [], id="probabilities-to-bce"),
        pytest.param("binary_cross_entropy_with_logits", INSIDE, [(20, "double_sigmoid")],
                     id="double-sigmoid"),
        pytest.param("binary_cross_entropy_with_logits", {**INSIDE, "input_max": 0.4}, [],
                     id="small-logits-above-0"),
        pytest.param("binary_cross_entropy_with_logits", {}, [], id="logits-to-bce"),
        pytest.param("binary_cross_entropy_with_logits",
                     {**INSIDE, "input_min": 0.466, "input_max": 0.572}, [],
                     id="scores-of-a-stuck-model"),
        pytest.param("cross_entropy", dict.fromkeys(LOGITS, NAN), [], id="nan"),
        pytest.param("cross_entropy", dict.fromkeys(LOGITS, INF), [(1, "double_softmax")],
                     id="no-crash-on-infinity"),
    ],
)  # fmt: skip
def test_kinds(function: str, facts: Any, expected: list[Any]) -> None:
    assert told(run_of(function, facts)) == expected


def test_the_same_verdict_at_wider_intervals() -> None:
    assert told(run_of("cross_entropy", PROBABLE, every=50)) == [(50, "double_softmax")]
    wide = run_of("binary_cross_entropy_with_logits", INSIDE, every=50)
    assert told(wide) == [(450, "double_sigmoid")]


@pytest.mark.parametrize(("kind", "depth", "scale", "at"), [
    ("Sigmoid", 2, 1.0, 1), ("Sigmoid", 0, 1.0, 20), ("Sigmoid", 2, 2.0, 20),
    ("ReLU", 2, 1.0, None),
])  # fmt: skip
def test_a_sigmoid_module_that_makes_the_output_is_proof(
    kind: str, depth: int, scale: float, at: int | None
) -> None:
    script = Script(
        tensor("w", "weights", depth=1),
        tensor("activation/last", "activations", (2,), kind=kind, depth=depth),
        tensor("output/0", "outputs", (2,)),
    )
    values: dict[str, Any] = {"w": 1.0, "activation/last": [0.1, 0.9],
                              "output/0": [0.1 * scale, 0.9 * scale]}  # fmt: skip
    facts = {f"binary_cross_entropy_with_logits.{k}": v for k, v in {**LOGITS, **INSIDE}.items()}
    run = [script.step(i, values, scalars={"objective": facts}) for i in range(40)]
    assert told(run) == ([] if at is None else [(at, "double_sigmoid")])


def test_a_sigmoid_that_is_sure_of_everything_is_no_softmax() -> None:
    script = Script(
        tensor("w", "weights", depth=1),
        tensor("activation/last", "activations", (2,), kind="Sigmoid", depth=2),
        tensor("output/0", "outputs", (2,)),
    )
    values = {"w": 1.0, "activation/last": 1.0, "output/0": 1.0}
    facts = {f"binary_cross_entropy.{k}": v for k, v in {**LOGITS, **ONE}.items()}
    assert told([script.step(i, values, scalars={"objective": facts}) for i in range(9)]) == []


@pytest.mark.parametrize(
    ("facts", "more", "expected"),
    [
        pytest.param(WRONG, {"loss": 9.0}, [(20, "maximised")], id="rises"),
        pytest.param(WRONG, {"loss": -9.0}, [(20, "maximised")], id="the-negated-loss-is-seen"),
        pytest.param(WRONG, {"loss": 2.4}, [], id="a-guess"),
        pytest.param({"accuracy": 0.05}, {"loss": 9.0}, [], id="no-worse-than-a-guess"),
        pytest.param({**WRONG, "classes": 2.0}, {"loss": 9.0}, [], id="an-adversary"),
        pytest.param(WRONG, {"loss": 9.0, "labels": {"label/0": {0: 60, 1: 2, 2: 2}}}, [],
                     id="sorted-by-class"),
        pytest.param(WRONG, {"loss": NAN}, [], id="nan"),
        pytest.param(WRONG, {"loss": 9.0, "scalars": {"optimizer": {"lr_0": 1.0, "1.lr_0": 1.0}}},
                     [], id="players-of-a-game"),
    ],
)  # fmt: skip
def test_a_loss_that_is_made_to_rise(
    facts: dict[str, float], more: dict[str, Any], expected: list[Any]
) -> None:
    assert told(run_of("cross_entropy", facts, **{"labels": MIXED, **more})) == expected


def test_a_critic_may_be_unsure_for_long() -> None:
    players = {"optimizer": {"lr_0": 1.0, "1.lr_0": 1.0}}
    run = run_of("binary_cross_entropy_with_logits", INSIDE, scalars=players)
    assert told(run) == []


def test_the_message_says_what_cannot_be_reached() -> None:
    (finding,) = fold(RULE, run_of("cross_entropy", PROBABLE))[1]
    assert f"cannot come under {math.log1p(9 / math.e):.3g} with 10 classes" in finding.message
    assert "take the last softmax" in finding.remedies[0]


def test_shapes_are_told_in_numbers() -> None:
    (finding,) = fold(RULE, run_of("mse_loss", CROSSED))[1]
    assert "compares 64 predictions with 64 targets" in finding.message


def test_evaluations_do_not_count() -> None:
    assert fired(RULE, run_of("cross_entropy", PROBABLE, mode=Mode.EVAL)) == []
