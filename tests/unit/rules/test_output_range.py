from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.output_range import OutputRange

RULE = OutputRange()
DOLLARS = {"target_min": 0.0, "target_max": 100.0, "input_min": 0.3, "input_max": 0.7}


def run_of(
    kind: str | None,
    facts: Mapping[str, float],
    *,
    function: str = "mse_loss",
    low: float = 0.3,
    high: float = 0.7,
    scale: float = 1.0,
    depth: int = 2,
    steps: int = 40,
    every: int = 1,
    loss: Sequence[float] | float = 9.0,
    mode: Mode = Mode.TRAIN,
) -> list[Observation]:
    """A layer, an activation behind it, and the output, ``scale`` times the activation's."""
    script = Script(
        tensor("w", "weights", depth=1),
        tensor("activation/last", "activations", (2,), kind=kind or "GELU", depth=depth),
        tensor("output/0", "outputs", (2,)),
    )
    values: dict[str, Any] = {"w": 1.0, "activation/last": [low, high]}
    values["output/0"] = [low * scale, high * scale]
    if kind is None:
        del values["activation/last"]
    told = {f"{function}.{name}": value for name, value in facts.items()}
    return [
        script.step(i * every, values, scalars={"objective": told}, mode=mode,
                    loss=loss if isinstance(loss, float) else loss[i])
        for i in range(steps)
    ]  # fmt: skip


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


SEEN = {"input_min": 0.3, "input_max": 0.7}
UNIT = {**SEEN, "target_min": 0.0, "target_max": 1.0}
WIDER = {**SEEN, "target_min": -1.1, "target_max": 1.1}
ODD = {**SEEN, "target_min": NAN, "target_max": INF}
REACH = [(2, "unreachable_targets")]
STANDARD = {"target_min": -2.0, "target_max": 2.0, **SEEN}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of("Sigmoid", DOLLARS), REACH, id="sigmoid-for-0-to-100"),
        pytest.param(run_of("Sigmoid", UNIT), [], id="fits"),
        pytest.param(run_of("Sigmoid", STANDARD), REACH, id="sigmoid-for-standardised"),
        pytest.param(run_of("Tanh", STANDARD), REACH, id="tanh-for-standardised"),
        pytest.param(run_of("Tanh", WIDER), [], id="a-tenth"),
        pytest.param(run_of("ReLU", STANDARD), REACH, id="relu-for-negative-targets"),
        pytest.param(run_of("ReLU", DOLLARS), [], id="relu-for-positive-targets"),
        pytest.param(run_of("Softplus", STANDARD), REACH, id="softplus"),
        pytest.param(run_of("LogSigmoid", DOLLARS), REACH, id="never-above-0"),
        pytest.param(run_of("GELU", STANDARD), [], id="an-unbounded-activation"),
        pytest.param(run_of("Sigmoid", DOLLARS, scale=100.0), [], id="scaled-after-it"),
        pytest.param(run_of("Sigmoid", DOLLARS, depth=0), [], id="a-layer-after-it"),
        pytest.param(run_of("Sigmoid", {**SEEN, "target_min": 5.0, "target_max": 5.0}), REACH,
                     id="one-single-target-out-of-reach"),
        pytest.param(run_of("Sigmoid", {**SEEN, "target_min": 0.5, "target_max": 0.5}), [],
                     id="one-single-target"),
        pytest.param(run_of("Sigmoid", DOLLARS, function="gaussian_nll_loss"), [],
                     id="a-loss-that-is-not-elementwise"),
        pytest.param(run_of("Sigmoid", DOLLARS, mode=Mode.EVAL), [], id="evaluations"),
        pytest.param(run_of("Sigmoid", ODD), [], id="nan"),
        pytest.param(run_of("Sigmoid", {}), [], id="unknown"),
        pytest.param(run_of("Sigmoid", {**DOLLARS, "input_min": 0.4, "input_max": 0.5}), [],
                     id="a-loss-of-another-head"),
        pytest.param(run_of("Sigmoid", {**DOLLARS, "input_min": -0.4}), [],
                     id="a-loss-of-similarities"),
        pytest.param(run_of("Sigmoid", {**DOLLARS, "input_min": 0.32}), REACH,
                     id="a-loss-that-sees-a-sample"),
        pytest.param(run_of("Sigmoid", DOLLARS, steps=2), [], id="too-short"),
    ],
)  # fmt: skip
def test_modules(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


END = {**DOLLARS, "input_max": 0.999}


@pytest.mark.parametrize(
    ("facts", "fired_at"),
    [
        pytest.param(END, [30], id="came-to-the-end-and-stays"),
        pytest.param(DOLLARS, [], id="on-its-way"),
        pytest.param({**END, "input_max": 0.99}, [], id="near-the-end"),
        pytest.param({**END, "input_max": 1.2}, [], id="beyond"),
        pytest.param({**STANDARD, "input_min": -0.999, "input_max": 0.9}, [30], id="as-a-tanh"),
        pytest.param({**END, "target_max": 1.1}, [], id="the-targets-are-there"),
        pytest.param({**END, "input_max": NAN}, [], id="nan"),
    ],
)
def test_outputs_alone(facts: dict[str, float], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(None, facts)) == fired_at


@pytest.mark.parametrize(
    ("kind", "loss", "fired_at"),
    [
        pytest.param("Tanh", 2.3, [30], id="tanh"),
        pytest.param("ReLU", 2.3, [30], id="relu"),
        pytest.param("Sigmoid", 2.3, [], id="sigmoid-is-OBJ001-s-business"),
        pytest.param("LogSigmoid", 2.3, [], id="logarithms"),
        pytest.param("Tanh", [2.3 * 0.9**i for i in range(40)], [], id="it-learns"),
    ],
)
def test_bounded_logits(kind: str, loss: Any, fired_at: list[int]) -> None:
    assert fired(RULE, run_of(kind, SEEN, function="cross_entropy", loss=loss)) == fired_at


def test_the_same_verdict_at_wider_intervals() -> None:
    assert told(run_of("Sigmoid", DOLLARS, every=50)) == [(100, "unreachable_targets")]
    assert fired(RULE, run_of(None, END, every=50)) == [150]


def test_the_message_names_module_range_and_targets() -> None:
    (finding,) = fold(RULE, run_of("Sigmoid", DOLLARS))[1]
    assert finding.tensor == "activation/last"
    assert "stays between 0 and 1 since step 0" in finding.message
    assert "between 0 and 100, 99% of that out of reach" in finding.message


HOUSES = {"target_min": 150e3, "target_max": 260e3, "target_std": 3e4,
          "input_min": 4.0, "input_max": 9.0, "input_std": 1.0}  # fmt: skip
WIDE = {"target_min": -6e5, "target_max": 6e5, "target_std": 2e5,
        "input_min": -2.0, "input_max": 2.0, "input_std": 1.0}  # fmt: skip
SLOW = [(52, "unscaled_targets")]


@pytest.mark.parametrize(
    ("facts", "more", "expected"),
    [
        pytest.param(HOUSES, {}, SLOW, id="prices-of-houses"),
        pytest.param(WIDE, {}, SLOW, id="large-of-either-sign"),
        pytest.param({**HOUSES, "target_min": NAN}, {}, [], id="nan"),
        pytest.param(HOUSES, {"function": "l1_loss", "loss": 2e5}, SLOW, id="absolute-errors"),
        pytest.param(HOUSES, {"steps": 50}, [], id="too-early"),
        pytest.param({**HOUSES, "input_max": 2e3}, {}, [], id="on-its-way"),
        pytest.param({**HOUSES, "input_max": 700.0}, {"steps": 60}, [], id="soon-there"),
        pytest.param({**HOUSES, "input_min": 1.9e5, "input_max": 2.1e5}, {}, [],
                     id="a-bias-of-their-mean"),
        pytest.param({**HOUSES, "target_min": 25.0, "target_max": 340.0, "target_std": 77.0,
                      "input_max": 0.1}, {}, [], id="raw-targets-of-hundreds"),
        pytest.param(HOUSES, {"loss": 1e3}, [], id="a-loss-of-scaled-targets"),
        pytest.param(HOUSES, {"loss": [4e10 * 0.99**i for i in range(80)]}, [], id="it-falls"),
        pytest.param(HOUSES, {"function": "gaussian_nll_loss"}, [], id="another-loss"),
        pytest.param({**HOUSES, "target_max": INF, "target_std": INF}, {}, [], id="infinite"),
        pytest.param({}, {}, [], id="unknown"),
    ],
)  # fmt: skip
def test_a_linear_output_far_below_its_targets(
    facts: Mapping[str, float], more: Mapping[str, Any], expected: list[Any]
) -> None:
    assert told(run_of(None, facts, **{"loss": 4e10, "steps": 80, **more})) == expected


def test_a_wide_interval_judges_by_steps() -> None:
    run = run_of(None, HOUSES, loss=4e10, every=50)
    assert told(run) == [(150, "unscaled_targets")]
    (finding,) = fold(RULE, run)[1]
    assert "between 1.5e+05 and 2.6e+05" in finding.message
    assert "Standardise" in finding.remedies[0]
