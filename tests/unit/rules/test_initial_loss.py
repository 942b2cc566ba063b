from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.initial_loss import InitialLoss

RULE = InitialLoss()
GUESS = math.log(10)
TEN = {"objective": {"cross_entropy.classes": 10.0}}


def run_of(
    ratios: Sequence[float], every: int = 1, scalars: Any = TEN, **more: Any
) -> list[Observation]:
    """Losses in units of a guess's."""
    return [
        Script().step(i * every, loss=r * GUESS, scalars=scalars, **more)
        for i, r in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "every", "fired_at"),
    [
        pytest.param([1.0] * 9, 1, [], id="a-guess"),
        pytest.param([4.0] * 9, 1, [], id="high-but-usual"),
        pytest.param([9.0] * 9, 1, [5], id="sure-and-wrong"),
        pytest.param([9.0] * 9, 10, [20], id="every-10th"),
        pytest.param([9.0, 8, 7, 2, 2, 2, 2], 1, [], id="unlearned-at-once"),
        pytest.param([1.0] * 4 + [9.0] * 9, 1, [], id="later-is-another-matter"),
        pytest.param([0.1] * 9, 1, [], id="fine-tuning"),
        pytest.param([NAN] * 9, 1, [], id="nan"),
    ],
)
def test_fires_at(ratios: Sequence[float], every: int, fired_at: list[int]) -> None:
    assert fired(RULE, run_of(ratios, every)) == fired_at


@pytest.mark.parametrize(
    ("scalars", "fires"),
    [
        (TEN, True),
        ({"objective": {"nll_loss.classes": 10.0}}, True),
        ({"objective": {"mse_loss.target_std": 1.0}}, False),
        ({"objective": {"cross_entropy.classes": 1.0}}, False),
        ({"objective": {"cross_entropy.classes": NAN}}, False),
        ({"objective": {**TEN["objective"], "cross_entropy.weighted": 1.0}}, False),
        ({"objective": {**TEN["objective"], "cross_entropy.reduction_sum": 1.0}}, False),
        ({**TEN, "optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}, False),
    ],
)
def test_only_a_plain_mean_has_a_loss_of_a_guess(scalars: Any, fires: Any) -> None:
    assert bool(fired(RULE, run_of([9.0] * 9, scalars=scalars))) is fires


@pytest.mark.parametrize(("size", "fires"), [(1.0, True), (100.0, False)])
def test_raw_inputs_are_another_rules_business(size: float, fires: Any) -> None:
    script = Script(tensor("input/0", "inputs"))
    run = [script.step(i, {"input/0": size}, loss=30.0, scalars=TEN) for i in range(9)]
    assert bool(fired(RULE, run)) is fires


def test_the_finding_says_what_a_guess_costs() -> None:
    (finding,) = fold(RULE, run_of([9.0] * 9))[1]
    assert finding.evidence["classes"] == 10
    assert finding.first_step == 0
    assert "9 times the 2.3 of a guess among 10 classes" in finding.message


def test_evaluation_passes_are_not_looked_at() -> None:
    assert fired(RULE, run_of([9.0] * 9, mode=Mode.EVAL)) == []


@pytest.mark.parametrize(("spread", "fires"), [(1.0, False), (100.0, True)])
def test_a_loss_that_no_cross_entropy_can_have_holds_other_terms(spread: float, fires: Any) -> None:
    told = {
        **TEN["objective"],
        "cross_entropy.input_max": spread,
        "cross_entropy.input_min": -spread,
    }
    assert bool(fired(RULE, run_of([9.0] * 9, scalars={"objective": told}))) is fires
