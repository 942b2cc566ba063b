from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.bad_input import BadInput

RULE = BadInput()
BOTH = {"label/0": {0: 16, 1: 16}}


def script() -> Script:
    return Script(tensor("input/0", "inputs", (8,)), tensor("output/0", "outputs", (2,)))


def facts(**more: float) -> dict[str, dict[str, float]]:
    known = {"samples": 32.0, "features": 8.0, "seen": 2000.0, "duplicated_samples": 0.0}
    return {"batch": {f"input/0.{k}": v for k, v in {**known, **more}.items()}}


def run_of(
    values: Any, *, loss: float = 1.0, output: float = 1.0,
    told: Mapping[str, Mapping[str, float]] | None = None,
    labels: Mapping[str, Mapping[int, int]] = BOTH, steps: int = 5,
) -> list[Observation]:  # fmt: skip
    one = script()
    return [
        one.step(i, {"input/0": values(i) if callable(values) else values, "output/0": output},
                 loss=loss, scalars=told or facts(), labels=labels)
        for i in range(steps)
    ]  # fmt: skip


def varied(i: int) -> Any:
    return np.arange(8.0) + i


@pytest.mark.parametrize(
    ("values", "loss", "output", "fires"),
    [
        pytest.param([NAN, *range(7)], NAN, 1.0, [0], id="nan-and-the-loss-too"),
        pytest.param([INF, *range(7)], 1.0, NAN, [0], id="infinity-and-the-output-too"),
        pytest.param([NAN, *range(7)], 1.0, 1.0, [], id="gaps-that-the-model-fills"),
        pytest.param([-INF] * 4 + [0.0] * 4, NAN, 1.0, [], id="an-attention-mask"),
        pytest.param(varied, NAN, NAN, [], id="a-loss-that-is-ill-by-itself"),
    ],
)
def test_non_finite_inputs_are_told_once_when_training_suffers(
    values: Any, loss: float, output: float, fires: list[int]
) -> None:
    found = fold(RULE, run_of(values, loss=loss, output=output))[1]
    assert [f.step for f in found if f.evidence["kind"] == "non_finite"] == fires


@pytest.mark.parametrize(
    ("values", "labels", "kinds"),
    [
        pytest.param(0.0, BOTH, ["all_zero"], id="zeros"),
        pytest.param(0.0, {"label/0": {1: 32}}, [], id="zeros-of-one-class"),
        pytest.param(lambda i: 0.0 if i % 2 else 1.0 + i, BOTH, [], id="zeros-now-and-then"),
    ],
)
def test_inputs_that_are_all_zero(
    values: Any, labels: dict[str, dict[int, int]], kinds: list[str]
) -> None:
    found = fold(RULE, run_of(values, labels=labels))[1]
    assert [f.evidence["kind"] for f in found] == kinds


def test_samples_that_are_all_alike_are_told_while_labels_differ() -> None:
    same = facts(duplicated_samples=31 / 32)
    (finding,) = fold(RULE, run_of(varied, told=same))[1]
    assert (finding.step, finding.evidence["kind"]) == (2, "constant_input")
    constant = facts(constant_features=8.0)
    assert fired(RULE, run_of(varied, told=constant)) == [2]
    assert fired(RULE, run_of(varied, told=same, labels={"label/0": {1: 32}})) == []


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"constant_features": 5.0}, "constant_features"),
        ({"duplicated_features": 5.0}, "duplicated_features"),
        ({"correlation_max": 0.9999}, "correlated_features"),
        ({"constant_features": 4.0}, ""),
        ({"constant_features": 5.0, "seen": 900.0}, ""),
        ({"constant_features": 5.0, "features": 300.0}, ""),
        ({"constant_features": 3.0, "duplicated_features": 5.0}, "nothing_but_copies"),
        (
            {"constant_features": 3.0, "duplicated_features": 5.0, "seen": 256.0},
            "nothing_but_copies",
        ),
        ({"constant_features": 3.0, "duplicated_features": 5.0, "seen": 240.0}, ""),
        ({"constant_features": 3.0, "duplicated_features": 2.0, "seen": 900.0}, ""),
        (
            {"constant_features": 3.0, "duplicated_features": 3.0, "seen": 900.0},
            "nothing_but_copies",
        ),
        (
            {"constant_features": 2.0, "duplicated_features": 3.0, "features": 7.0, "seen": 900.0},
            "",
        ),
        ({"constant_features": 7.0, "duplicated_features": 1.0, "seen": 900.0}, ""),
        ({"duplicated_features": 40.0, "features": 43.0, "seen": 300.0}, ""),
    ],
)
def test_columns_are_told_if_the_run_does_not_learn(more: dict[str, float], kind: str) -> None:
    found = fold(RULE, run_of(varied, told=facts(**more), steps=60))[1]
    assert [f.evidence["kind"] for f in found] == ([kind] if kind else [])
    one = script()
    learning = [
        one.step(i, {"input/0": varied(i)}, loss=0.97**i, scalars=facts(**more), labels=BOTH)
        for i in range(60)
    ]
    assert fired(RULE, learning) == []


@pytest.mark.parametrize(("left", "fires"), [(0.8, [50]), (0.65, [])])
def test_what_few_columns_say_may_be_learned_a_little(left: float, fires: list[int]) -> None:
    copied = facts(constant_features=3.0, duplicated_features=5.0)
    one = script()
    run = [
        one.step(i, {"input/0": varied(i)}, loss=1.0 if i < 5 else left, scalars=copied,
                 labels=BOTH)
        for i in range(60)
    ]  # fmt: skip
    assert fired(RULE, run) == fires


@pytest.mark.parametrize(
    ("order", "loss", "fires"),
    [
        pytest.param({"data/fc1.linear": 0, "loss": 1}, NAN, [0], id="data-first"),
        pytest.param({"operation/fc1.log": 0, "data/fc2": 1}, NAN, [], id="an-operation-first"),
        pytest.param({"data/fc1.linear": 0}, 1.0, [], id="a-loss-that-is-finite"),
    ],
)
def test_data_that_was_first_to_be_non_finite_at_a_step_without_inputs(
    order: dict[str, float], loss: float, fires: list[int]
) -> None:
    history = {"history": {f"order@{name}": rank for name, rank in order.items()}}
    obs = script().step(0, loss=loss, scalars=history)
    assert fired(RULE, [obs]) == fires


def validated(
    loss: float = 4.0, *, seen: float = 200.0, passes: int = 4, train: float = 1.0, **held: float
) -> list[Observation]:
    """Training at a loss of 1, then of ``train``, and passes whose inputs are held against it."""
    one, found = script(), []
    for i in range(passes):
        found.append(one.step(10 * i, {"input/0": varied(i), "output/0": 1.0},
                              loss=1.0 if i < 3 else train, scalars=facts(),
                              labels=BOTH))  # fmt: skip
        batch = {f"input/0.{name}": value for name, value in {"seen": seen, **held}.items()}
        found.append(one.step(10 * i + 5, loss=loss, scalars={"batch": batch}, mode=Mode.EVAL))
    return found


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(validated(apart=78.0, wider=96.0), [15], id="raw-pixels"),
        pytest.param(validated(apart=0.45, wider=0.225), [15], id="means-and-std-of-imagenet"),
        pytest.param(validated(apart=1.4, wider=0.5), [15], id="a-half-and-a-half"),
        pytest.param(validated(apart=1.2, wider=1.0), [15], id="another-mean"),
        pytest.param(validated(apart=78.0, wider=96.0, passes=1), [], id="one-pass"),
        pytest.param(validated(apart=78.0, wider=96.0, seen=30.0), [], id="few-samples"),
        pytest.param(validated(1.2, apart=78.0, wider=96.0), [], id="validation-does-not-mind"),
        pytest.param(
            validated(1.6e-3, passes=6, apart=1.3, wider=0.9, train=1e-3),
            [],
            id="next-to-nothing-of-the-way",
        ),
        pytest.param(
            validated(0.2, passes=6, apart=1.3, wider=0.9, train=1e-3), [35], id="much-of-the-way"
        ),
        pytest.param(validated(apart=0.3, wider=0.7), [], id="training-is-augmented"),
        pytest.param(validated(apart=0.05, wider=0.5), [], id="noise-is-added-in-training"),
        pytest.param(validated(apart=0.2, wider=0.004), [15], id="divided-by-255-twice"),
        pytest.param(validated(apart=NAN, wider=NAN), [], id="unknown"),
        pytest.param(validated(), [], id="not-told"),
        pytest.param(validated(NAN, apart=78.0, wider=96.0), [], id="the-loss-is-not-finite"),
    ],
)
def test_validation_inputs_unlike_those_of_training(
    run: list[Observation], fires: list[int]
) -> None:
    found = fold(RULE, run)[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == [
        (step, "validation_differs") for step in fires
    ]
    assert all(f.first_step == 5 for f in found)
