from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.over_regularization import OverRegularization

RULE = OverRegularization()
TENSORS = matrices("a", "b")
GUESS = math.log(10)
CLASSES = {"cross_entropy.classes": 10.0}
DECAY = {"lr_0": 0.05, "weight_decay_0": 0.3, "momentum_0": 0.9, "adaptive_0": 0.0}
WEAK = {**DECAY, "weight_decay_0": 1e-3}
NONE = {**DECAY, "weight_decay_0": 0.0}


def shrinking(i: int) -> float:
    return 0.88**i


def resting(_: int) -> float:
    return 1.0


def run_of(
    size: Callable[[int], float],
    optimizer: Mapping[str, float],
    *,
    loss: Callable[[int], float] = lambda _: GUESS,
    objective: Mapping[str, float] = CLASSES,
    dropout: float = 0.1,
    steps: int = 100,
    every: int = 1,
    named: str = "loss",
) -> list[Observation]:
    script, run = Script(*TENSORS), []
    for i in range(0, steps, every):
        scalars = {"optimizer": optimizer, "objective": objective,
                   "loop": {"dropout_max": dropout}, "losses": {"loss": loss(i)}}  # fmt: skip
        if named != "loss":  # the sum with a penalty has a name of its own
            scalars["losses"] = {"loss": loss(i) + 20 * size(i) ** 2, named: loss(i)}
        run.append(script.step(i, {"a": size(i), "b": size(i)}, scalars=scalars))
    return run


def told(run: Sequence[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


def learned(i: int) -> float:
    return GUESS * 0.95**i


def smoothed(share: float) -> dict[str, float]:
    return {**CLASSES, "cross_entropy.smoothing": share}


REGRESSION = {"mse_loss.input_std": 0.01, "mse_loss.target_std": 1.0}
ALIVE = {"mse_loss.input_std": 0.5, "mse_loss.target_std": 1.0}


def drawn_down(gradient: float, optimizer: Mapping[str, float], **more: Any) -> list[Observation]:
    """Two matrices of norm 4 that shrink to a half, and their gradients."""
    script = Script(*TENSORS, tensor("gradient/a", "gradients", (4, 4)))
    loss = more.get("loss", lambda _: GUESS)
    return [
        script.step(
            i,
            {name: max(0.5, 0.98**i) for name in "ab"} | {"gradient/a": gradient},
            scalars={"optimizer": optimizer, "objective": CLASSES, "losses": {"loss": loss(i)}},
        )
        for i in range(100)
    ]


ADAM = {"lr_0": 1e-3, "weight_decay_0": 0.3, "adaptive_0": 1.0, "decoupled_0": 0.0}


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(drawn_down(0.1, ADAM), [(26, "weight_decay")], id="adams-decay-leads"),
        pytest.param(drawn_down(0.1, ADAM, loss=learned), [], id="it-learns-all-the-same"),
        pytest.param(drawn_down(5.0, ADAM), [], id="the-loss-leads"),
        pytest.param(drawn_down(0.1, {**ADAM, "decoupled_0": 1.0}), [], id="adamw"),
        pytest.param(drawn_down(0.1, {**ADAM, "weight_decay_1": 0.0}), [], id="of-some-weights"),
        pytest.param(drawn_down(0.0, ADAM), [], id="no-gradient-at-all"),
    ],
)
def test_a_decay_that_is_part_of_the_gradient(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of(shrinking, DECAY), [(21, "weight_decay")], id="decay-outweighs"),
        pytest.param(run_of(shrinking, WEAK), [(30, "weight_decay")], id="decay-shrinks"),
        pytest.param(run_of(shrinking, WEAK, loss=learned), [], id="it-shrinks-and-learns"),
        pytest.param(run_of(resting, DECAY), [], id="a-decay-that-is-held"),
        pytest.param(run_of(lambda i: max(0.7, 0.88**i), {**DECAY, "adaptive_0": 1.0, "lr_0": 0.1},
                            loss=learned), [(21, "weight_decay")], id="adamw-forgets"),
        pytest.param(run_of(lambda i: max(0.7, 0.88**i), {**WEAK, "adaptive_0": 1.0},
                            loss=learned), [], id="adamw-as-usual"),
        pytest.param(run_of(shrinking, NONE, named="cross_entropy"), [(30, "penalty")],
                     id="penalty"),
        pytest.param(run_of(shrinking, NONE, named="cross_entropy", loss=learned), [],
                     id="a-penalty-under-which-it-learns"),
        pytest.param(run_of(shrinking, NONE, objective=REGRESSION), [(30, "penalty")],
                     id="a-regression-that-says-the-same-to-all"),
        pytest.param(run_of(shrinking, NONE, objective=ALIVE), [], id="a-regression-that-does-not"),
        pytest.param(run_of(shrinking, NONE, objective={}), [(30, "penalty")],
                     id="a-loss-nobody-knows-that-stays"),
        pytest.param(run_of(shrinking, NONE, objective={}, loss=learned), [],
                     id="a-loss-nobody-knows-that-falls"),
        pytest.param(run_of(resting, NONE, dropout=0.95), [(64, "dropout")], id="dropout"),
        pytest.param(run_of(resting, NONE, dropout=0.95, loss=learned), [],
                     id="dropout-under-which-it-learns"),
        pytest.param(run_of(resting, NONE, dropout=0.5), [], id="a-usual-dropout"),
        pytest.param(run_of(resting, NONE, objective=smoothed(0.95)), [(64, "smoothing")],
                     id="smoothing"),
        pytest.param(run_of(resting, NONE, objective=smoothed(0.95), loss=learned), [],
                     id="smoothing-under-which-it-learns"),
        pytest.param(run_of(resting, NONE, objective=smoothed(0.2)), [], id="a-usual-smoothing"),
        pytest.param(run_of(lambda _: NAN, DECAY), [], id="nan-weights"),
        pytest.param(run_of(shrinking, NONE, loss=lambda _: NAN), [], id="nan-loss"),
        pytest.param(run_of(resting, dict.fromkeys(DECAY, INF), dropout=NAN), [], id="infinite"),
    ],
)  # fmt: skip
def test_kinds(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


def test_the_same_verdict_at_wider_intervals() -> None:
    assert told(run_of(shrinking, DECAY, every=10)) == [(50, "weight_decay")]
    assert told(run_of(resting, NONE, dropout=0.9, every=50, steps=500)) == [(400, "dropout")]


def test_the_message_names_decay_rate_and_size() -> None:
    (finding,) = fold(RULE, run_of(shrinking, DECAY))[1]
    assert "a weight decay of 0.3 at a learning rate of 0.05" in finding.message
    assert finding.evidence["decay_a_step"] == 0.15


def test_evaluations_do_not_count() -> None:
    script = Script(*TENSORS)
    run = [
        script.step(i, {"a": 0.88**i, "b": 0.88**i}, loss=2.3, mode=Mode.EVAL) for i in range(50)
    ]
    assert fired(RULE, run) == []


def test_weights_that_are_not_finite_have_no_size() -> None:
    assert told(run_of(lambda i: 1.0 if i < 7 else NAN, NONE)) == []
