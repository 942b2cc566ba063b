from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation, TensorInfo
from trainwarden.rules.missing_gradient import MissingGradient

RULE = MissingGradient()
GENERATOR = np.random.default_rng(0)
CLASSES = {"objective": {"cross_entropy.classes": 10.0}}
SOUND = {
    "stepped": 1.0, "parameters": 3.0, "parameters_without_gradient": 0.0,
    "optimizer_tensors": 3.0, "optimizer_tensors_foreign": 0.0,
}  # fmt: skip


def layer(name: str, depth: int, *, trainable: bool = True, **more: Any) -> TensorInfo:
    info = tensor(name, "weights", (10, 64), depth=depth, trainable=trainable)
    return replace(info, **{"module": name.rpartition(".")[0], **more})


def gradient(name: str, depth: int) -> TensorInfo:
    return tensor(f"gradient/{name}", "gradients", (10, 64), depth=depth)


EVEN = GENERATOR.uniform(-1, 1, (10, 64)) / 8  # torch's own initialisation
TRAINED = EVEN + 0.1 * GENERATOR.standard_normal((10, 64))
NORMAL = 0.02 * GENERATOR.standard_normal((10, 64))


def frozen(
    head: npt.ArrayLike = EVEN,
    *others: TensorInfo,
    facts: Mapping[str, Mapping[str, float]] = CLASSES,
    steps: int = 5,
    thawed: bool = False,
    **more: Any,
) -> list[Observation]:
    """A trained scale below a frozen last layer."""
    scale = layer("bn.weight", 1, kind="BatchNorm1d", shape=(64,))
    last = layer("fc.weight", 2, trainable=False, **more)
    script = Script(scale, last, *others, gradient("fc.weight", 2))
    values: dict[str, Any] = {"bn.weight": 1.0, "fc.weight": head}
    if thawed:
        values["gradient/fc.weight"] = 0.1
    values |= {other.name: TRAINED for other in others if other.shape == (10, 64)}
    return [script.step(i, values, scalars={**facts, "loop": SOUND}) for i in range(steps)]


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


def test_a_frozen_output_layer_at_its_random_start_is_told_at_the_third_step() -> None:
    (finding,) = fold(RULE, frozen())[1]
    assert (finding.step, finding.first_step, finding.tensor) == (2, 0, "fc.weight")
    assert "still holds its random start" in finding.message
    assert finding.remedies == ("Set requires_grad=True for the new output layer.",)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(frozen(TRAINED), id="pre-trained"),
        pytest.param(frozen(NORMAL), id="a-normal-distribution-may-be-trained"),
        pytest.param(frozen(np.zeros((10, 64))), id="zeros"),
        pytest.param(frozen(np.full((10, 64), NAN)), id="nan"),
        pytest.param(frozen(EVEN + 1), id="not-about-0"),
        pytest.param(frozen(EVEN, layer("fc.low_rank", 2, module="fc")), id="adapter-inside"),
        pytest.param(frozen(EVEN, layer("a.low_rank", 2, module="a"), module="a.fc"),
                     id="adapter-around"),
        pytest.param(frozen(EVEN, layer("up.weight", 3)), id="adapter-after"),
        pytest.param(frozen(EVEN, layer("free", -1)), id="a-trainable-tensor-nobody-saw-at-work"),
        pytest.param(frozen(facts={"objective": {"cross_entropy.classes": 7.0}}),
                     id="not-what-the-loss-is-computed-of"),
        pytest.param(frozen(facts={"objective": {"mse_loss.target_max": 7.0}}), id="regression"),
        pytest.param(frozen(facts={}), id="no-loss-known"),
        pytest.param(frozen(thawed=True), id="thawed-since"),
        pytest.param(frozen(kind="Embedding"), id="an-embedding"),
        pytest.param(frozen(steps=2), id="too-short"),
    ],
)  # fmt: skip
def test_what_may_be_frozen(run: list[Observation]) -> None:
    assert fired(RULE, run) == []


def test_a_part_that_was_not_entered_lies_where_the_module_around_it_does() -> None:
    inner = layer("attention.out.weight", -1)  # attention uses its weight without a call
    assert told(frozen(EVEN, inner, layer("attention.in", 0))) == [(2, "frozen_output_layer")]
    assert told(frozen(EVEN, inner, layer("attention.in", 3))) == []


def test_a_network_of_which_only_biases_are_trained_has_a_frozen_output_layer() -> None:
    bias = tensor("fc.bias", "biases", (10,), depth=2)
    script = Script(layer("fc.weight", 2, trainable=False), bias)
    values: dict[str, Any] = {"fc.weight": EVEN, "fc.bias": 0.0}
    run = [script.step(i, values, scalars={**CLASSES, "loop": SOUND}) for i in range(5)]
    assert told(run) == [(2, "frozen_output_layer")]
    frozen_too = Script(*(replace(t, trainable=False) for t in script.layout.tensors))
    run = [frozen_too.step(i, values, scalars={**CLASSES, "loop": SOUND}) for i in range(5)]
    assert told(run) == []


@pytest.mark.parametrize("bound", [1 / 8, math.sqrt(6 / 74), 1.0])
def test_any_even_distribution_is_a_random_start(bound: float) -> None:
    assert told(frozen(EVEN * 8 * bound)) == [(2, "frozen_output_layer")]


def test_a_single_output_answers_two_classes() -> None:
    facts = {"objective": {"binary_cross_entropy_with_logits.classes": 2.0}}
    many = GENERATOR.uniform(-1, 1, (1, 64))
    assert told(frozen(many, facts=facts, shape=(1, 64))) == [(2, "frozen_output_layer")]


def test_without_facts_of_the_loss_labels_and_outputs_must_fit() -> None:
    put_out = tensor("output/0", "outputs", (10,))
    scale, last = layer("bn.weight", 1, shape=(64,)), layer("fc.weight", 2, trainable=False)
    script, labels = Script(scale, last, put_out), {"label/0": {0: 30, 1: 34}}
    values: dict[str, Any] = {"bn.weight": 1.0, "fc.weight": EVEN, "output/0": 0.5}
    assert fired(RULE, [script.step(i, values, labels=labels) for i in range(5)]) == [2]
    assert fired(RULE, [script.step(i, values) for i in range(5)]) == []


def run_of(
    loop: Mapping[str, float],
    with_gradient: str = "",
    *,
    weights: npt.ArrayLike = NORMAL,
    steps: int = 5,
    every: int = 1,
    falling: bool = False,
    **optimizer: float,
) -> list[Observation]:
    """Four trainable matrices; those named get a gradient."""
    names = "abcd"
    layers = [layer(n, i) for i, n in enumerate(names)]
    script = Script(*layers, *(gradient(n, i) for i, n in enumerate(names)))
    values: dict[str, Any] = dict.fromkeys(names, weights)
    values |= {f"gradient/{n}": 0.1 for n in with_gradient}
    facts = {"loop": {**SOUND, **loop}, "optimizer": {"lr_0": 0.1, **optimizer}}
    return [
        script.step(i * every, values, loss=2.3 * 0.9**i if falling else 2.3, scalars=facts)
        for i in range(steps)
    ]


BARE2, BARE4 = ({"parameters": 4.0, "optimizer_tensors": 4.0, "parameters_without_gradient": n}
                for n in (2.0, 4.0))  # fmt: skip


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of({}, "abcd", steps=90), [], id="sound"),
        pytest.param(run_of({"parameters": 0.0}, "abcd"), [(2, "all_frozen")], id="all-frozen"),
        pytest.param(run_of({"parameters": 0.0, "optimizer_tensors_foreign": 3.0}), [],
                     id="a-frozen-critic-of-a-tensor-that-is-trained"),
        pytest.param(run_of(BARE4), [(2, "no_gradient")], id="no-gradient-at-all"),
        pytest.param(run_of({**BARE4, "gradients_discarded": 1.0}), [],
                     id="gradients-thrown-away-are-LOP002-s-business"),
        pytest.param(run_of({**BARE4, "stepped": 0.0}), [], id="no-step"),
        pytest.param(run_of(BARE4, found_inf=1.0), [], id="skipped-by-gradscaler"),
        pytest.param(run_of(BARE2, "cd", weights=EVEN), [(2, "graph_cut")], id="cut-at-the-start"),
        pytest.param(run_of(BARE2, "cd", steps=90), [(50, "graph_cut")], id="cut-and-stuck"),
        pytest.param(run_of(BARE2, "cd", steps=9, every=10), [(50, "graph_cut")],
                     id="cut-and-stuck-at-wider-intervals"),
        pytest.param(run_of(BARE2, "cd", steps=90, falling=True), [],
                     id="a-body-without-gradient-whose-head-learns"),
        pytest.param(run_of(BARE2, "ab", weights=EVEN, steps=90), [(50, "no_gradient_layer")],
                     id="layers-at-the-end"),
        pytest.param(run_of(BARE2, "ac", steps=90, falling=True), [], id="experts-at-rest"),
        pytest.param(run_of({**BARE2, "parameters_without_gradient": 1.0}, "cd", weights=EVEN),
                     [], id="sparse-gradients-are-there-though-not-captured"),
        pytest.param(run_of({}, "cd", weights=EVEN), [], id="a-body-in-no-optimizer"),
        pytest.param(run_of(dict.fromkeys(SOUND, NAN), "cd"), [], id="unknown"),
    ],
)  # fmt: skip
def test_kinds(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


def test_evaluations_do_not_count() -> None:
    assert fired(RULE, [replace(obs, mode=Mode.EVAL) for obs in run_of(BARE4)]) == []


def test_the_cut_is_named_with_the_layers_before_it() -> None:
    (finding,) = fold(RULE, run_of(BARE2, "cd", weights=EVEN))[1]
    assert finding.tensor == "b"
    assert finding.evidence["tensors"] == ["a", "b"]
    assert "the first 2 of 4 trainable weight matrices, up to b" in finding.message
