from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    ],
)
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
