"""What rules read from facts, said once."""

from __future__ import annotations

import math

import pytest

from tests.unit.rules.runs import NAN, Script, matrices
from trainwarden.rules._baseline import choices, classes
from trainwarden.rules._facts import several_optimizers, skipped
from trainwarden.stats.catalog import Flag


@pytest.mark.parametrize(
    ("facts", "flags", "expected"),
    [
        pytest.param({"found_inf": 1.0}, 0, True, id="by-a-fact"),
        pytest.param({}, Flag.SKIPPED | Flag.SCALED, True, id="by-a-flag-of-a-gradient"),
        pytest.param({"found_inf": 0.0}, Flag.SCALED, False, id="scaled-only"),
        pytest.param({}, 0, False, id="nothing-said"),
        pytest.param({"found_inf": NAN}, 0, False, id="no-number"),
    ],
)
def test_a_step_that_the_scaler_left_out(
    facts: dict[str, float], flags: int, *, expected: bool
) -> None:
    script = Script(*matrices("w"))
    obs = script.step(0, {"gradient/w": 1.0}, scalars={"optimizer": facts}, flags=flags)
    assert skipped(obs) is expected


def test_without_a_captured_gradient_only_the_fact_counts() -> None:
    obs = Script(*matrices("w")).step(0, {"w": 1.0}, flags=Flag.SKIPPED)
    assert not skipped(obs)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("lr_0",), False),
        (("lr_0", "lr_1", "momentum_0"), False),
        (("lr_0", "1.lr_0"), True),
        (("1.lr_0",), True),
        (("2.lr_0", "lr_0"), True),
        ((), False),
    ],
)
def test_more_than_one_optimizer(names: tuple[str, ...], *, expected: bool) -> None:
    obs = Script().step(0, scalars={"optimizer": dict.fromkeys(names, 0.1)})
    assert several_optimizers(obs) is expected


@pytest.mark.parametrize(
    ("facts", "labels", "crossed", "chosen"),
    [
        ({"cross_entropy.classes": 10.0}, {}, 10, 10),
        ({"binary_cross_entropy.classes": 2.0}, {}, 0, 2),
        ({}, {"label/0": {0: 5, 1: 5, 2: 1}}, 3, 3),
        ({"cross_entropy.classes": NAN}, {"label/0": {0: 5, 4: 5}}, 2, 2),
        ({"cross_entropy.classes": math.inf}, {}, 0, 0),
        ({"cross_entropy.classes": 1.0}, {}, 0, 0),
        ({}, {}, 0, 0),
    ],
)
def test_classes_of_a_cross_entropy_and_of_any_loss(
    facts: dict[str, float], labels: dict[str, dict[int, int]], crossed: int, chosen: float
) -> None:
    obs = Script().step(0, scalars={"objective": facts}, labels=labels)
    assert classes(obs) == crossed
    assert choices(obs) == chosen
