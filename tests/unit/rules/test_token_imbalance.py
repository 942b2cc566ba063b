from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold
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
    assert (finding.evidence["kind"], finding.evidence["token"]) == ("padding", pad)


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


UNKNOWN = {0: 480, 1: 12, 2: 12, 3: 8}  # 94 %; what knows no more has a loss of 0.29


FOUR_IN_FIVE: dict[str, Any] = {
    **{name: {0: 420, 1: 40, 2: 30, 3: 22} for name in ("targets", "inputs")},
    "right": {0: 400, 2: 5},
    "loss": 0.4,
}


def unknown(
    *, targets: Mapping[int, int] = UNKNOWN, inputs: Mapping[int, int] = UNKNOWN,
    right: Mapping[int, int] | None = None, loss: float = 0.29, steps: int = 40, every: int = 1,
    **scalars: Any,
) -> list[Observation]:  # fmt: skip
    right = {0: 480} if right is None else right
    tables = {"label/0": targets, "input/0": inputs, "correct/0": right}
    return [
        Script().step(i * every, labels=tables, loss=loss, scalars=scalars) for i in range(steps)
    ]


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(unknown(), [30], id="nearly-all-are-unknown"),
        pytest.param(unknown(every=10), [50], id="at-six-saved-steps"),
        pytest.param(unknown(steps=30), [], id="too-early"),
        pytest.param(unknown(loss=0.25), [], id="it-learns-where-the-others-are"),
        pytest.param(unknown(right={0: 479, 2: 1}), [], id="others-are-said-right"),
        pytest.param(unknown(right={0: 480, 1: 0}), [30], id="a-zero-is-no-answer"),
        pytest.param(unknown(inputs={0: 100, 1: 200, 2: 100, 3: 112}), [], id="targets-alone"),
        pytest.param(unknown(targets={0: 420, 1: 40, 2: 30, 3: 22}, loss=0.65), [],
                     id="four-in-five-are-no-event"),
        pytest.param(unknown(targets={0: 500, 1: 12}, inputs={0: 500, 1: 12}), [],
                     id="two-symbols"),
        pytest.param(unknown(objective={"cross_entropy.weighted": 1.0}), [], id="weighted"),
        pytest.param(unknown(**FOUR_IN_FIVE, objective={"cross_entropy.classes": 80.0}), [30],
                     id="hardly-a-token-of-the-vocabulary-occurs"),
        pytest.param(unknown(**FOUR_IN_FIVE, objective={"cross_entropy.classes": 79.0}), [],
                     id="one-in-nineteen-occurs"),
        pytest.param(unknown(loss=NAN), [], id="no-loss"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_does_not_know_the_text(run: list[Observation], fires: list[int]) -> None:
    found = fold(RULE, run)[1]
    assert [f.step for f in found] == fires
    assert all(f.evidence["kind"] == "vocabulary" for f in found)


def test_without_the_right_answers_nothing_is_said_of_few_tokens() -> None:
    tables = {"label/0": UNKNOWN, "input/0": UNKNOWN}
    assert fired(RULE, [Script().step(i, labels=tables, loss=0.29) for i in range(40)]) == []


CLASSES = {0: 10, 1: 10, 2: 10, 3: 10}


def classified(
    loss: Any, *, padding: int = 900, steps: int = 30, labels: Mapping[int, int] = CLASSES
) -> list[Observation]:
    """Every fifth step: classes of whole texts, of which ``padding`` in 1,000 tokens is one."""
    words = dict.fromkeys(range(1, 41), (1000 - padding) // 40)
    tables = {"label/0": labels, "input/0": {0: padding, **words}}
    values = loss if callable(loss) else lambda _: loss
    return [Script().step(5 * i, loss=values(i), labels=tables) for i in range(steps)]


GUESS = 1.386  # ln 4


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(classified(GUESS), [100], id="padding-is-all-that-is-read"),
        pytest.param(classified(lambda i: GUESS + 0.05 * (-1) ** i), [100], id="noise"),
        pytest.param(classified(GUESS, padding=600), [], id="less-padding"),
        pytest.param(classified(GUESS, steps=20), [], id="not-for-long"),
        pytest.param(classified(lambda i: GUESS - 0.005 * i), [], id="it-learns-slowly"),
        pytest.param(classified(lambda i: GUESS if i % 15 else 1.2), [], id="now-and-then-it-does"),
        pytest.param(classified(0.0, labels={0: 40}), [], id="one-class-alone"),
        pytest.param(classified(NAN), [], id="unknown"),
    ],
)
def test_texts_that_are_mostly_padding(run: list[Observation], fires: list[int]) -> None:
    found = fold(RULE, run)[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == [
        (step, "padded_inputs") for step in fires
    ]
    assert all((f.first_step, f.evidence["token"]) == (0, 0) for f in found)
    assert all("last true token" in f.remedies[0] for f in found)
