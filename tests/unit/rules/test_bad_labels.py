from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.bad_labels import BadLabels

RULE = BadLabels()
TEN = {"label/0": dict.fromkeys(range(10), 50)}


def told(function: str = "cross_entropy", **facts: float) -> dict[str, dict[str, float]]:
    return {"objective": {f"{function}.{name}": value for name, value in facts.items()}}


@pytest.mark.parametrize(
    ("function", "facts", "loss", "fires"),
    [
        pytest.param("binary_cross_entropy_with_logits",
                     {"impossible_targets": 0.6, "target_min": 1, "target_max": 2}, 1.0, [0],
                     id="classes-one-and-two-in-a-binary-loss"),
        pytest.param("binary_cross_entropy_with_logits",
                     {"impossible_targets": 0.6, "target_min": -1, "target_max": 1}, 1.0, [0],
                     id="minus-one-and-one"),
        pytest.param("binary_cross_entropy_with_logits",
                     {"impossible_targets": 0.5, "target_min": 0, "target_max": 1.2}, 1.0, [],
                     id="noisy-labels-of-a-critic"),
        pytest.param("cross_entropy",
                     {"impossible_targets": 0.1, "target_min": 0, "target_max": 10}, 1.0, [0],
                     id="a-class-too-many"),
        pytest.param("mse_loss", {"impossible_targets": 0.1}, NAN, [0], id="nan-and-the-loss-too"),
        pytest.param("mse_loss", {"impossible_targets": 0.1}, 1.0, [], id="gaps-that-are-masked"),
        pytest.param("cross_entropy", {"impossible_targets": 0.0}, 1.0, [], id="sound"),
    ],
)  # fmt: skip
def test_targets_that_the_loss_has_no_meaning_for(
    function: str, facts: Mapping[str, float], loss: float, fires: list[int]
) -> None:
    run = [Script().step(i, loss=loss, scalars=told(function, **facts)) for i in range(3)]
    found = fold(RULE, run)[1]
    assert [f.step for f in found] == fires
    assert all(f.evidence["kind"] == "impossible" for f in found)


def learning(
    passes: int, validation: float, *, train: float = 0.95, classes: int = 10,
    labels: Mapping[str, Mapping[int, int]] = TEN, batch: Mapping[int, int] | None = None,
) -> list[Observation]:  # fmt: skip
    run = []
    mixed = batch or dict.fromkeys(range(classes), 3)
    for i in range(passes):
        for step in range(5 * i, 5 * i + 5):
            facts: dict[str, Any] = told(accuracy=train, classes=float(classes))
            run.append(Script().step(step, labels={"label/0": mixed}, scalars=facts))
        facts = told(accuracy=validation, classes=float(classes))
        run.append(Script().step(5 * i + 5, mode=Mode.EVAL, labels=labels, scalars=facts))
    return run


TWO = {"label/0": {0: 100, 1: 100}}
FEW = {"label/0": {0: 50, 1: 50}}


@pytest.mark.parametrize(
    ("run", "kinds"),
    [
        pytest.param(learning(3, 0.0), ["out_of_order"], id="other-numbers-in-validation"),
        pytest.param(learning(3, 0.03, classes=2, labels=TWO), ["out_of_order"], id="inverted"),
        pytest.param(learning(3, 0.1), ["random_labels"], id="learned-by-heart"),
        pytest.param(learning(2, 0.0), [], id="two-passes"),
        pytest.param(learning(9, 0.5), [], id="overfit"),
        pytest.param(learning(9, 0.9), [], id="sound"),
        pytest.param(learning(9, 0.1, train=0.3), [], id="not-learned-yet"),
        pytest.param(learning(9, 0.1, batch={3: 30}), [], id="one-class-a-batch-is-another-fault"),
        pytest.param(learning(9, 0.0, labels={"label/0": {0: 9}}), [], id="nine-validation-rows"),
        pytest.param(learning(9, 0.54, classes=2, labels=FEW), ["random_labels"], id="luck"),
        pytest.param(learning(9, 0.6, classes=2, labels=FEW), [], id="few-rows-hide-weak-labels"),
        pytest.param(learning(9, 0.54, classes=2, labels=FEW | {"predicted/0": {0: 20, 1: 80}}),
                     ["random_labels"], id="one-class-is-said-more-often"),
        pytest.param(learning(9, 0.17, labels=TEN), [], id="weak-but-no-luck"),
    ],
)  # fmt: skip
def test_validation_tells_labels_that_do_not_belong(
    run: list[Observation], kinds: list[str]
) -> None:
    assert [f.evidence["kind"] for f in fold(RULE, run)[1]] == kinds


def constant(
    labels: Mapping[int, int], accuracy: float, steps: int = 200, width: int = 2
) -> list[Observation]:
    facts = told(accuracy=accuracy, classes=2.0)
    tables = {"label/0": labels}
    script = Script(tensor("output/0", "outputs", (width,)))
    return [script.step(i, labels=tables, scalars=facts) for i in range(steps)]


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(constant({1: 64}, 1.0), [100], id="one-class-only"),
        pytest.param(constant({1: 64}, 0.2), [], id="an-answer-that-is-not-learned"),
        pytest.param(constant({0: 63, 1: 1}, 1.0), [], id="a-rare-class"),
        pytest.param(constant({1: 64}, 1.0, steps=70), [], id="too-early"),
        pytest.param(constant({0: 64}, 1.0, width=16), [], id="a-contrastive-loss"),
    ],
)
def test_labels_that_are_all_the_same(run: list[Observation], fires: list[int]) -> None:
    assert fired(RULE, run) == fires


def by_heart(
    train: float, validation: Sequence[float], *, start: float = 2.33, labels: int = 10,
    rows: int = 500, classes: int = 10, **more: float,
) -> list[Observation]:  # fmt: skip
    """Losses of a network over ten classes; the best that knows no more than these has ln 10.

    With other ``classes`` they are these losses over their own logarithm.
    """
    part = math.log(classes) / math.log(10)
    train, start, labels = part * train, part * start, min(labels, classes)
    run = []
    for i, loss in enumerate(validation):
        for step in range(5 * i, 5 * i + 5):
            facts: dict[str, Any] = told("cross_entropy", accuracy=0.2, classes=classes, **more)
            batch = {"label/0": dict.fromkeys(range(labels), 60 // labels)}
            run.append(Script().step(step, loss=start if step < 3 else train, labels=batch,
                                     scalars=facts))  # fmt: skip
        facts = told(accuracy=0.1, classes=classes)
        every = {"label/0": dict.fromkeys(range(classes), rows // classes)}
        run.append(
            Script().step(5 * i + 5, loss=part * loss, mode=Mode.EVAL, labels=every, scalars=facts)
        )
    return run


RISING = [2.31, 2.33, 2.36, 2.4, 2.42, 2.45, 2.5]
BACK = [2.3, 2.28, 2.26, 2.25, 2.26, 2.26, 2.27, 2.27, 2.28, 2.28, 2.28, 2.29]


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(by_heart(2.1, RISING), [30], id="validation-never-was-better-than-a-guess"),
        pytest.param(by_heart(2.1, RISING[:5]), [], id="five-passes"),
        pytest.param(by_heart(2.2, RISING), [], id="training-has-hardly-begun"),
        pytest.param(by_heart(2.1, BACK), [60], id="groups-of-rows-agree-by-chance"),
        pytest.param(by_heart(2.1, BACK[1:]), [], id="eleven-passes"),
        pytest.param(by_heart(2.1, BACK, classes=8), [60], id="of-eight-classes"),
        pytest.param(by_heart(2.1, BACK, classes=5), [], id="few-classes-may-have-weak-labels"),
        pytest.param(by_heart(2.15, BACK), [], id="not-by-heart-as-yet"),
        pytest.param(by_heart(2.0, [loss - 0.05 for loss in BACK]), [], id="weakly-learned"),
        pytest.param(by_heart(2.0, [2.35 - 0.01 * i for i in range(14)]), [], id="still-better"),
        pytest.param(by_heart(2.1, [*RISING[:3], 2.2, 2.4, 2.45, 2.5]), [], id="overfit"),
        pytest.param(by_heart(2.1, [2.31] * 7), [], id="validation-waits"),
        pytest.param(by_heart(2.05, RISING, labels=8), [], id="fewer-classes-in-training"),
        pytest.param(by_heart(1.9, RISING, labels=8), [30], id="but-it-knows-more-than-that"),
        pytest.param(
            by_heart(2.1, [0.1 + loss for loss in RISING], rows=150),
            [],
            id="too-few-rows-to-show-what-is-weak",
        ),
        pytest.param(by_heart(2.1, RISING, smoothing=0.1), [], id="smoothed-labels"),
        pytest.param(by_heart(2.1, RISING, weighted=1.0), [], id="weighted-classes"),
        pytest.param(by_heart(2.1, RISING, start=9.0), [], id="another-loss-beside-it"),
        pytest.param(by_heart(2.1, [NAN] * 7), [], id="unknown-validation-loss"),
    ],
)
def test_losses_tell_random_labels_before_they_are_learned_by_heart(
    run: list[Observation], fires: list[int]
) -> None:
    found = fold(RULE, run)[1]
    assert [f.step for f in found] == fires
    assert all(f.evidence["kind"] == "random_labels" for f in found)


WAVE = np.sin(np.arange(48.0))


def gaps(
    number: float, *, of: int = 12, others: float = 1.0, function: str = "mse_loss",
    output: float = 0.3, steps: int = 40, masked: bool = False, offset: float = 0.0,
) -> list[Observation]:  # fmt: skip
    """Targets of a wave, another one at each step, with a number for gaps, one in ``of``."""
    script, run = Script(tensor("label/0", "labels", (48,))), []
    for i in range(steps):
        targets = offset + others * np.roll(WAVE, i) * (1 + i / 100)
        targets[::of] = number
        apart = np.abs(targets - output)
        terms = apart**2 if function == "mse_loss" else apart
        loss = float(terms[targets != number].mean() if masked else terms.mean())
        facts = told(function, target_min=float(targets.min()), target_max=float(targets.max()),
                     target_std=float(targets.std()), input_min=output - 0.2,
                     input_max=output + 0.2)  # fmt: skip
        run.append(script.step(i, {"label/0": targets}, loss=loss, scalars=facts))
    return run


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        pytest.param(gaps(-9999), [20], id="-9999-for-missing-ones"),
        pytest.param(gaps(999), [20], id="999"),
        pytest.param(gaps(-9999, function="l1_loss"), [20], id="absolute-errors"),
        pytest.param(gaps(-9999, masked=True), [], id="the-loss-leaves-them-out"),
        pytest.param(gaps(3.4e38), [20], id="the-largest-number-there-is"),
        pytest.param(gaps(-32768), [20], id="the-end-of-an-integer"),
        pytest.param(gaps(-5000), [], id="the-price-of-a-crash"),
        pytest.param(gaps(-9999, output=-6000.0), [], id="it-is-learned"),
        pytest.param(gaps(-9), [], id="an-outlier-near-by"),
        pytest.param(gaps(-9999, of=2), [], id="half-of-them-is-no-gap"),
        pytest.param(gaps(1000.0, others=0.0), [], id="two-numbers-only"),
        pytest.param(gaps(0.0, offset=500.0), [], id="the-others-make-the-loss"),
        pytest.param(gaps(-9999, steps=15), [], id="too-early"),
        pytest.param(gaps(-9999, function="gaussian_nll_loss"), [], id="another-loss"),
        pytest.param(gaps(NAN), [], id="nan"),
    ],
)
def test_a_number_that_stands_for_missing_targets(run: list[Observation], fires: list[int]) -> None:
    found = fold(RULE, run)[1]
    assert [f.step for f in found] == fires
    assert all(f.evidence["kind"] == "missing_marked" for f in found)


def test_a_rare_number_need_not_be_in_every_batch() -> None:
    rare, without = gaps(-9999, steps=80), gaps(0.5, steps=80)
    run = [rare[i] if i % 5 == 0 else without[i] for i in range(80)]
    (finding,) = fold(RULE, run)[1]
    assert finding.step == 20
    assert finding.evidence["number"] == -9999


def mixed(
    *, again: float = 50.0, share: float = 0.75, chance: float = 0.75, loss: float = 1.38,
    saves: int = 20, unreduced: float = 0.0, **scalars: Mapping[str, float],
) -> list[Observation]:  # fmt: skip
    """Every fifth step of a run in which ``again`` samples come again at each."""
    facts = {"label/0.relabelled": share, "label/0.by_chance": chance}
    run = []
    for i in range(saves):
        batch = {**facts, "label/0.repeated": again * i} if i else {"label/0.repeated": 0.0}
        facts_of_loss = told(accuracy=0.25, classes=4.0, unreduced=unreduced)
        all_facts = {**facts_of_loss, "batch": batch, **scalars}
        four = {"label/0": dict.fromkeys(range(4), 16)}
        run.append(Script().step(5 * i, loss=loss, labels=four, scalars=all_facts))
    return run


def test_labels_that_do_not_stay_with_their_samples() -> None:
    (found,) = fold(RULE, mixed())[1]
    assert found.evidence["kind"] == "relabelled"
    assert (found.step, found.first_step, found.value) == (50, 0, 0.75)
    assert found.limit == pytest.approx(0.95 * 0.75)
    assert "of 500 samples that came again 75% had another label" in found.message


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"share": 0.0}, id="they-stay"),
        pytest.param({"share": 0.6}, id="two-in-five-are-wrong"),
        pytest.param({"again": 10.0}, id="too-few-came-again"),
        pytest.param({"loss": 1.2}, id="something-is-learned"),
        pytest.param({"share": 0.02, "chance": 0.02}, id="nearly-all-labels-are-alike"),
        pytest.param({"optimizer": {"lr_0": 0.1, "1.lr_0": 0.1}}, id="adversaries"),
        pytest.param({"saves": 10}, id="too-short"),
        pytest.param({"unreduced": 1.0}, id="actions-and-rewards"),
    ],
)
def test_labels_that_are_not_mixed(change: Any) -> None:
    assert fold(RULE, mixed(**change))[1] == []


def test_what_learned_once_is_not_mixed_whatever_follows() -> None:
    run = [*mixed(loss=1.1, saves=8), *mixed()[8:]]
    assert fold(RULE, run)[1] == []


def test_labels_of_which_no_two_are_alike_have_no_least_loss() -> None:
    assert fold(RULE, mixed(share=1.0, chance=1.0, loss=7.0))[1] == []
