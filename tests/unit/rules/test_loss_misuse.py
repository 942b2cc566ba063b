from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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


def fallen(
    function: str = "", facts: Mapping[str, float] | None = None, *, steps: int = 40,
    losses: Sequence[float] = (), scores: float = 1.0, **more: Any,
) -> list[Observation]:  # fmt: skip
    """A loss below 0 that runs away; soon the output's elements lie ``scores`` x it apart."""
    script = Script(tensor("output/0", "outputs", (4,)))
    known = {f"{function}.{name}": value for name, value in (facts or {}).items()}
    run = []
    for i in range(steps):
        loss = losses[i] if losses else -1.5 * 1.3**i
        values: dict[str, Any] = {}
        if scores:
            values["output/0"] = np.linspace(-0.5, 0.5, 4) * loss * (scores if i else 1.0)
        scalars = {"objective": known, **more} if known else dict(more)
        run.append(script.step(i, values, loss=loss, scalars=scalars))
    return run


GONE = {"input_min": -90.0, "input_max": -60.0, "input_std": 5.0,
        "target_min": -2.0, "target_max": 2.0, "target_std": 1.0}  # fmt: skip
MIRRORED = {"accuracy": 0.1, "target_std": 0.5, "impossible_targets": 0.0}
RUN_AWAY = {"classes": 4.0, "accuracy": 0.3, "input_min": -400.0, "input_max": 5.0}
BINARY = "binary_cross_entropy_with_logits"
NEGATED = [(20, "negated")]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(fallen("mse_loss", GONE, losses=[-4e3] * 40), NEGATED, id="squares"),
        pytest.param(fallen("l1_loss", GONE, losses=[-70.0] * 40), NEGATED, id="absolute-errors"),
        pytest.param(fallen("mse_loss", GONE, losses=[-4e3] * 19, steps=19), [], id="too-early"),
        pytest.param(fallen("mse_loss", GONE, losses=[1.0, *[-4e3] * 39]), [],
                     id="not-below-0-from-the-start"),
        pytest.param(fallen("mse_loss", GONE, losses=[-4.0] * 40), [],
                     id="a-reward-beside-the-distance"),
        pytest.param(fallen("mse_loss", {**GONE, "input_min": -3.0, "input_max": 3.0},
                            losses=[-4e3] * 40), [], id="outputs-are-where-targets-are"),
        pytest.param(fallen("mse_loss", dict.fromkeys(GONE, NAN)), [], id="nan"),
        pytest.param(fallen("mse_loss", dict.fromkeys(GONE, INF)), [], id="infinite"),
        pytest.param(fallen("mse_loss", GONE, losses=[NAN] * 40), [], id="no-loss"),
        pytest.param(fallen("mse_loss", GONE, losses=[-4e3] * 40,
                            optimizer={"lr_0": 1.0, "1.lr_0": 1.0}), [], id="players-of-a-game"),
        pytest.param(fallen(BINARY, MIRRORED, losses=[-3.0] * 40), NEGATED, id="binary"),
        pytest.param(fallen(BINARY, {**MIRRORED, "accuracy": 0.4}, losses=[-3.0] * 40), [],
                     id="a-binary-loss-beside-a-reward"),
        pytest.param(fallen(BINARY, {**MIRRORED, "target_std": 0.0}, losses=[-3.0] * 40), [],
                     id="an-adversary-of-one-class"),
        pytest.param(fallen(BINARY, {**MIRRORED, "impossible_targets": 0.6}, losses=[-3.0] * 40),
                     [], id="labels-of-2-are-DAT006-s-business"),
        pytest.param(fallen("l1_loss", {**GONE, "input_max": 90.0, "input_std": 50.0},
                            losses=[-40.0] * 40), NEGATED, id="outputs-on-either-side"),
        pytest.param(fallen("cross_entropy", RUN_AWAY), NEGATED, id="a-cross-entropy"),
        pytest.param(fallen("nll_loss", {**RUN_AWAY, "log_rows_sum_to_one": 1.0}), NEGATED,
                     id="logarithms-of-probabilities"),
        pytest.param(fallen("nll_loss", {**RUN_AWAY, "log_rows_sum_to_one": 0.9}), [],
                     id="what-may-be-above-0"),
        pytest.param(fallen("cross_entropy", {**RUN_AWAY, "accuracy": 0.6}), [],
                     id="classes-are-learned-beside-a-reward"),
        pytest.param(fallen("cross_entropy", {**RUN_AWAY, "input_min": -5.0}), [],
                     id="another-part-makes-the-loss"),
        pytest.param(fallen("kl_div", GONE), [], id="a-function-that-may-be-below-0"),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_below_0(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(fallen(), NEGATED, id="a-likelihood-of-classes"),
        pytest.param(fallen(scores=10.0), NEGATED, id="scores-of-few-samples-lie-farther-apart"),
        pytest.param(fallen(losses=[-1.5] * 40), [], id="a-similarity"),
        pytest.param(fallen(losses=[-0.1 * 1.4**i for i in range(40)]), [],
                     id="it-began-near-0-as-a-critic-s"),
        pytest.param(fallen(losses=[-9.0 * 1.3**i for i in range(40)]), [],
                     id="it-began-far-below-as-a-return"),
        pytest.param(fallen(losses=[-1.5 - 0.5 * i for i in range(40)]), [], id="not-yet-far"),
        pytest.param(fallen(scores=0.1), [], id="scores-are-no-likelihood-s"),
        pytest.param(fallen(scores=100.0), [], id="nor-these"),
        pytest.param(fallen(scores=0.0), [], id="no-outputs-known"),
        pytest.param(fallen(losses=[-1.5 * 1.3**i for i in range(39)] + [1.0], steps=40), NEGATED,
                     id="told-before-it-rises"),
    ],
)  # fmt: skip
def test_a_likelihood_by_hand_with_the_wrong_sign(
    run: list[Observation], expected: list[Any]
) -> None:
    assert told(run) == expected


@pytest.mark.parametrize(("far", "expected"), [(1.0, NEGATED), (0.1, NEGATED), (0.0, [])])
def test_squares_by_hand_with_the_wrong_sign(far: float, expected: list[Any]) -> None:
    script = Script(tensor("output/0", "outputs", (8,)), tensor("label/0", "labels", (8,)))
    targets, run = np.linspace(-1.0, 1.0, 8), []
    for i in range(40):
        output = 0.5 * targets - far * 1.5**i
        loss = -float(((output - targets) ** 2).mean())
        run.append(script.step(i, {"output/0": output, "label/0": targets}, loss=loss))
    assert told(run) == expected


def test_what_is_negated_is_said_in_numbers() -> None:
    (finding,) = fold(RULE, fallen("mse_loss", GONE, losses=[-4e3] * 40))[1]
    assert "as is the negative of mse_loss: outputs are so far" in finding.message
    assert (finding.first_step, finding.evidence["function"]) == (0, "mse_loss")
    assert "sign of the loss" in finding.remedies[0]


PIXELS = np.concatenate([np.full(40, -0.8), np.linspace(-0.8, 1.8, 40), np.full(16, 1.8)])


def reconstructed(targets: np.ndarray, function: str = "binary_cross_entropy") -> list[Observation]:
    """A loss between images, of which only the targets count."""
    script = Script(tensor("label/0", "labels", targets.shape))
    facts = {**LOGITS, "target_min": targets.min(), "target_max": targets.max(),
             "target_std": targets.std(),
             "impossible_targets": float(np.mean((targets < 0) | (targets > 1)))}  # fmt: skip
    known = {f"{function}.{name}": float(value) for name, value in facts.items()}
    return [
        script.step(i, {"label/0": targets}, loss=0.7, scalars={"objective": known})
        for i in range(30)
    ]


@pytest.mark.parametrize(
    ("targets", "kinds"),
    [
        pytest.param(PIXELS, ["targets_outside"], id="standardised-images"),
        pytest.param(np.linspace(-1, 1, 64), ["targets_outside"], id="images-for-a-tanh"),
        pytest.param(PIXELS * 0.35 + 0.3, [], id="pixels"),
        pytest.param(np.linspace(-0.1, 1.2, 64), [], id="smoothed-at-random"),
        pytest.param(np.linspace(0.0, 1.0, 64)[:, None] * [1, 0.9], [], id="soft-targets"),
        pytest.param(np.repeat([-1.0, 1.0], 32), [], id="signs-are-labels"),
        pytest.param(np.repeat([1.0, 2.0, 5.0], 32), [], id="numbers-of-classes-are-labels"),
        pytest.param(np.append(np.linspace(0, 1, 90), [-7.5] * 9), [], id="a-few-are-bad-labels"),
    ],
)
def test_a_binary_loss_of_real_numbers(targets: np.ndarray, kinds: list[str]) -> None:
    for function in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
        assert [kind for _, kind in told(reconstructed(targets, function))] == kinds
    assert told(reconstructed(targets, "mse_loss")) == []
