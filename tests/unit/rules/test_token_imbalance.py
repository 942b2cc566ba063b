from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.rules.runs import Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.class_imbalance import ClassImbalance
from trainwarden.rules.token_imbalance import TokenImbalance

RULE = TokenImbalance()


def text(padding: int, *, words: int = 40, pad: int = 0) -> dict[int, int]:
    return {pad: padding, **{100 + i: max(1, 300 // (i + 1)) for i in range(words)}}


def run_of(
    targets: Mapping[int, int],
    inputs: Mapping[int, int],
    *,
    scalars: Mapping[str, Any] | None = None,
    mode: Mode = Mode.TRAIN,
) -> list[Observation]:
    tables = {"label/0": targets, "input/0": inputs}
    return [Script().step(i, labels=tables, scalars=scalars, mode=mode) for i in range(5)]


@pytest.mark.parametrize("pad", [0, 140])
def test_padding_in_targets_and_inputs_is_told_at_the_third_saved_step(pad: int) -> None:
    run = run_of(text(3000, pad=pad), text(2900, pad=pad))
    (finding,) = fold(RULE, run)[1]
    assert (finding.step, finding.first_step, finding.tensor) == (2, 0, "label/0")
    assert finding.evidence["token"] == pad


@pytest.mark.parametrize(
    ("targets", "inputs", "scalars"),
    [
        pytest.param(text(500), text(500), {}, id="spaces-of-a-text"),
        pytest.param(text(3000), text(100), {}, id="targets-alone"),
        pytest.param({0: 900, 1: 100}, {0: 900, 1: 100}, {}, id="two-symbols"),
        pytest.param(text(60), {**text(3000), **dict.fromkeys(range(900, 1500), 9)}, {},
                     id="a-label-for-each-text"),
        pytest.param(text(3000), text(3000), {"objective": {"cross_entropy.ignored": 0.7}},
                     id="padding-that-the-loss-ignores"),
        pytest.param(text(3000), text(3000), {"labels": {"weighted": 1.0}}, id="weighted"),
        pytest.param(text(3000), text(3000),
                     {"objective": {"cross_entropy.ignored": 0.0},
                      "losses": {"loss": 3.70, "cross_entropy": 3.71}}, id="a-mask-of-ones-own"),
    ],
)  # fmt: skip
def test_healthy_tokens(
    targets: dict[int, int], inputs: dict[int, int], scalars: dict[str, Any]
) -> None:
    assert fired(RULE, run_of(targets, inputs, scalars=scalars)) == []


def test_evaluation_is_left_alone_and_a_healthy_step_ends_the_row() -> None:
    assert fired(RULE, run_of(text(3000), text(3000), mode=Mode.EVAL)) == []
    ill, well = run_of(text(3000), text(3000)), run_of(text(500), text(500))
    run = [ill[0], ill[1], well[2], ill[3], ill[4]]
    assert fired(RULE, run) == []


def test_class_imbalance_leaves_tokens_to_it() -> None:
    assert fired(ClassImbalance(), run_of(text(3000), text(2900))) == []
