from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.exploding_gradient import ExplodingGradient
from trainwarden.stats.catalog import Flag

RULE = ExplodingGradient()
NAMES = "abcd"
TENSORS = matrices(*NAMES)


def run_of(*steps: tuple[float, float], every: int = 1, **more: Any) -> list[Observation]:
    """One (gradient of every element, loss) for each saved step."""
    script = Script(*TENSORS)
    return [
        script.step(i * every, {f"gradient/{n}": g for n in NAMES}, loss=loss, **more)
        for i, (g, loss) in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "fired_at"),
    [
        pytest.param([(0.1, 2.3)] * 9, [], id="steady"),
        pytest.param([(0.1, 2.3)] * 3 + [(200.0, 40.0)] * 4, [3], id="grown-and-the-loss-with-it"),
        pytest.param([(0.1, 2.3)] * 3 + [(200.0, 2.0)] * 4, [], id="grown-while-the-loss-falls"),
        pytest.param([(0.1, 2.3)] * 3 + [(50.0, 40.0)] * 4, [], id="not-grown-enough"),
        pytest.param([(0.1, 2.3), (200.0, 40.0)], [1], id="at-the-second-step"),
        pytest.param([(0.1, 2.3)] * 2 + [(9.0, 8.0), (NAN, NAN)], [3], id="grown-before-nan"),
        pytest.param([(0.1, 2.3)] * 2 + [(9.0, 2.3), (INF, 2.3)], [3], id="before-infinity"),
        pytest.param([(0.1, 2.3)] * 4 + [(NAN, NAN)] * 3, [], id="nan-out-of-the-blue"),
        pytest.param([(NAN, NAN)] * 4, [], id="nan-from-the-start"),
        pytest.param([(0.0, 2.3)] * 4 + [(NAN, NAN)], [], id="zero-then-nan"),
        pytest.param([(0.1, -2.3)] * 3 + [(200.0, 40.0)] * 4, [], id="a-loss-of-either-sign"),
    ],
)
def test_fires_at(steps: Sequence[tuple[float, float]], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*steps)) == fired_at


@pytest.mark.parametrize("every", [1, 10, 50])
def test_the_same_verdict_at_any_interval(every: int) -> None:
    run = run_of(*[(0.1, 2.3)] * 3, (200.0, 40.0), every=every)
    assert fired(RULE, run) == [3 * every]


def test_the_finding_says_by_how_much_and_since_when() -> None:
    (finding,) = fold(RULE, run_of(*[(0.1, 2.3)] * 4, (5.0, 3.0), (200.0, 40.0)))[1]
    assert (finding.step, finding.first_step) == (5, 4)
    assert finding.evidence["kind"] == "growth"
    assert finding.evidence["base"] == pytest.approx(0.8)  # 64 elements of 0.1
    assert finding.value == pytest.approx(1600)
    assert "2e+03 times" in finding.message


def test_steps_that_gradscaler_skipped_are_passed_over() -> None:
    run = run_of(*[(0.1, 2.3)] * 3)
    run += run_of(*[(INF, 2.3)] * 9, flags=Flag.SKIPPED)
    assert fired(RULE, run) == []


def test_adversaries_are_left_alone() -> None:
    two = {"optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}
    assert fired(RULE, run_of(*[(0.1, 2.3)] * 3, (200.0, 40.0), scalars=two)) == []


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({"window": {"loss_max": 500.0}}, ["post_mortem"]),
        ({"window": {"loss_max": 5.0}}, []),
        ({"history": {"grad_norm@2": 900.0, "loss@2": 9.0}}, ["post_mortem"]),
        ({"history": {"grad_norm@2": 0.9, "grad_norm@x": 1e9}}, []),
    ],
)
def test_what_lay_between_saved_steps_counts(
    facts: dict[str, dict[str, float]], kind: list[str]
) -> None:
    run = run_of(*[(0.1, 2.3)] * 3)
    run += [Script(*TENSORS).step(9, {"gradient/a": NAN}, loss=NAN, scalars=facts)]
    assert [f.evidence["kind"] for f in fold(RULE, run)[1]] == kind


@pytest.mark.parametrize(
    ("gradients", "fall", "fired_at"),
    [
        ((1e4, 1e3, 1e1, 1.0), 1.0, [2]),
        ((1e4, 1e3, 1e1, 1.0), 0.8, []),
        ((1e4, 1e-3, 1e-2, 1.0), 1.0, []),
        ((1e2, 1e1, 2.0, 1.0), 1.0, []),
    ],
)
def test_growth_over_depth(gradients: Sequence[float], fall: float, fired_at: list[int]) -> None:
    script = Script(*TENSORS)
    values = {f"gradient/{n}": g for n, g in zip(NAMES, gradients, strict=True)}
    run = [script.step(i, values, loss=2.3 * fall**i) for i in range(9)]
    assert fired(RULE, run) == fired_at


def test_evaluation_passes_are_not_looked_at() -> None:
    run = run_of(*[(0.1, 2.3)] * 3)
    run.append(Script().step(3, loss=NAN, mode=Mode.EVAL))
    assert fired(RULE, run) == []


@pytest.mark.parametrize(
    ("gradient", "loss", "size", "kinds"),
    [
        (1e3, 2.3, 1.0, ["steep"]),
        (1e3, -2.3, 1.0, []),
        (1.0, 2.3, 1.0, []),
        (1e3, 1e6, 1.0, []),  # huge units of the loss
        (1e3, 2.3, 100.0, []),  # raw inputs
    ],
)
def test_a_gradient_too_steep_at_the_very_start(
    gradient: float, loss: float, size: float, kinds: list[str]
) -> None:
    script = Script(*TENSORS, tensor("input/0", "inputs"))
    values = dict.fromkeys(NAMES, 1.0) | {f"gradient/{n}": gradient for n in NAMES}
    run = [script.step(i, {**values, "input/0": size}, loss=loss) for i in range(5)]
    assert [f.evidence["kind"] for f in fold(RULE, run)[1]] == kinds
