from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation, TensorInfo
from trainwarden.rules import build
from trainwarden.rules.not_normalized_data import NotNormalizedData

RULE = NotNormalizedData()
IN, OUT = 16, 4


def facts(mean: float = 0.0, std: float = 1.0, **more: float) -> dict[str, float]:
    known = {
        "samples": 32.0, "seen": 64.0, "features": float(IN), "mean": mean, "std": std,
        "min": mean - 2 * std, "max": mean + 2 * std, "feature_mean_max": abs(mean),
        "feature_std_max": std, "feature_std_min": std,
    }  # fmt: skip
    return {f"input/0.{name}": value for name, value in {**known, **more}.items()}


def layer(name: str, depth: int, *, kind: str = "Linear", trainable: bool = True,
          bias: bool = True, fan_in: int = IN) -> list[TensorInfo]:  # fmt: skip
    weight = tensor(f"{name}.weight", "weights", (OUT, fan_in), kind=kind, depth=depth,
                    trainable=trainable)  # fmt: skip
    found = [weight, replace(weight, name=f"gradient/{name}.weight", collection="gradients")]
    if bias:
        one = replace(weight, name=f"{name}.bias", collection="biases", shape=(OUT,))
        found += [one, replace(one, name=f"gradient/{name}.bias", collection="gradients")]
    return [replace(info, module=name) for info in found]


def norm(depth: int) -> TensorInfo:
    one = tensor("norm.weight", "weights", (IN,), kind="BatchNorm1d", depth=depth)
    return replace(one, module="norm")


def run_of(
    told: Mapping[str, float],
    seen: float,
    *,
    layers: list[TensorInfo] | None = None,
    steps: int = 5,
    loss: float = 1.0,
    mode: Mode = Mode.TRAIN,
) -> list[Observation]:
    """Gradients as inputs of root mean square ``seen`` give: ∂W = ∂b xᵀ."""
    script = Script(tensor("input/0", "inputs", (IN,)), *(layers or layer("fc", 0)))
    names = {info.name for info in script.layout.tensors}
    values = {"input/0": 0.0}
    values |= {n: 0.5 * seen for n in names if n.startswith("gradient/") and n.endswith("weight")}
    values |= {n: 0.5 for n in names if n.startswith("gradient/") and n.endswith("bias")}
    return [
        script.step(i, values, loss=loss, mode=mode, scalars={"batch": told}) for i in range(steps)
    ]


@pytest.mark.parametrize(
    ("told", "seen", "kind"),
    [
        pytest.param(facts(78, 96, min=0, max=255), 124, "pixels", id="raw-pixels"),
        pytest.param(facts(0, 300), 300, "range", id="hundreds"),
        pytest.param(facts(0, 900, feature_std_min=0.01), 200, "spread", id="raw-table"),
        pytest.param(facts(1980, 20), 1980, "offset", id="years"),
    ],
)
def test_raw_inputs_are_told_at_the_third_saved_step_by_kind(
    told: dict[str, float], seen: float, kind: str
) -> None:
    (finding,) = fold(RULE, run_of(told, seen))[1]
    assert (finding.step, finding.first_step, finding.tensor) == (2, 0, "input/0")
    assert finding.evidence["kind"] == kind
    assert finding.evidence["reaching"] == pytest.approx(seen, rel=1e-5)


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        pytest.param(facts(), 1.0, id="standardised"),
        pytest.param(facts(0.3, 0.4, min=0, max=1), 0.5, id="pixels-from-0-to-1"),
        pytest.param(facts(5, 6, min=0, max=16), 8.0, id="sixteen-grey-levels"),
        pytest.param(facts(0, 1.2, max=40), 1.2, id="outliers"),
        pytest.param(facts(0.01, 0.1, min=0, max=1, feature_std_min=1e-4), 0.1, id="one-hot"),
        pytest.param(facts(78, 96, min=0, max=255), 0.6, id="pixels-that-the-model-scales"),
        pytest.param(facts(1.6e9, 1e6), 1.0, id="time-stamps-that-the-model-scales"),
        pytest.param(facts(0, 5.8, min=-10, max=10), 5.8, id="observations-within-ten"),
        pytest.param(facts(0, 300), 1e7, id="a-bias-whose-gradient-cancels"),
        pytest.param(facts(0, 300, seen=8), 300, id="too-few-samples"),
    ],
)
def test_inputs_of_unit_size_where_they_enter_are_fine(told: dict[str, float], seen: float) -> None:
    assert fired(RULE, run_of(told, seen)) == []


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param([norm(0), *layer("fc", 1)], id="a-norm-first"),
        pytest.param([*layer("fc", 0), norm(1)], id="a-norm-second"),
        pytest.param(layer("fc", 0, trainable=False), id="a-frozen-layer-first"),
        pytest.param([replace(norm(0), kind="Scale"), *layer("fc", 1)], id="a-scaling-first"),
    ],
)
def test_models_that_normalise_or_do_not_learn_their_first_layer_are_not_judged(
    layers: list[TensorInfo],
) -> None:
    assert fired(RULE, run_of(facts(0, 300), 300, layers=layers)) == []


def test_the_layer_that_fits_the_input_is_looked_at() -> None:
    layers = [*layer("text", 0, fan_in=8), *layer("table", 1)]
    run = run_of(facts(0, 300), 300, layers=layers)
    assert fired(RULE, run) == [2]


def test_a_net_that_died_at_once_leaves_the_gradients_of_its_first_step() -> None:
    first, *_ = run_of(facts(0, 300), 300)
    rest = run_of(facts(0, 300), 0.0)[1:]
    assert fired(RULE, [first, *rest]) == [2]


@pytest.mark.parametrize(("activation", "fires"), [(40.0, [2]), (0.5, [])])
def test_without_a_bias_the_first_activations_stand_in(activation: float, fires: list[int]) -> None:
    relu = tensor("activation/relu", "activations", (4,), kind="ReLU", depth=1)
    script = Script(tensor("input/0", "inputs", (IN,)), *layer("fc", 0, bias=False), relu)
    run = [
        script.step(i, {"activation/relu": activation}, scalars={"batch": facts(0, 300)})
        for i in range(4)
    ]
    assert fired(RULE, run) == fires


def test_tiny_inputs_are_told_only_when_the_loss_rests() -> None:
    tiny = facts(0, 1e-5)
    assert fired(RULE, run_of(tiny, 1e-5, steps=120)) == [100]
    falling = [
        replace(obs, scalars={**obs.scalars, "losses": {"loss": 2 * 0.99**obs.step}})
        for obs in run_of(tiny, 1e-5, steps=120)
    ]
    assert fired(RULE, falling) == []


def test_unknown_facts_evaluation_and_later_steps_say_nothing() -> None:
    assert fired(RULE, run_of(facts(NAN, NAN, feature_std_max=NAN), 300)) == []
    assert fired(RULE, run_of(facts(0, 300), 300, mode=Mode.EVAL)) == []
    run = run_of(facts(), 1, steps=130) + run_of(facts(0, 300), 300)
    assert fired(RULE, run) == []


@pytest.mark.parametrize(
    ("told", "fires"),
    [(facts(0.05, 1.1, seen=500), []), (facts(0.5, 1, seen=500), [0]), (facts(0.5, 1), []),
     (facts(0, 0.3, seen=500), [0])],
)  # fmt: skip
def test_with_limits_given_mean_and_std_are_held_against_0_and_1(
    told: dict[str, float], fires: list[int]
) -> None:
    given: dict[str, Any] = {"threshold_mean": "0.2"}
    assert fired(build("NotNormalizedData", given), run_of(told, 1.0)) == fires


def test_a_wide_gradient_is_the_oracle_of_the_size() -> None:
    rng = np.random.default_rng(0)
    x, delta = rng.normal(50, 10, (64, IN)), rng.normal(0.2, 1, (64, OUT))
    script = Script(tensor("input/0", "inputs", (IN,)), *layer("fc", 0))
    values = {"gradient/fc.weight": delta.T @ x, "gradient/fc.bias": delta.sum(0)}
    run = [script.step(i, values, scalars={"batch": facts(50, 10)}) for i in range(3)]
    (finding,) = fold(RULE, run)[1]
    assert finding.evidence["reaching"] == pytest.approx(np.sqrt((x**2).mean()), rel=0.1)
