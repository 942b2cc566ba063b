from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.collapse import Collapse

RULE = Collapse()
PLAYERS = {"lr_0": 1e-3, "1.lr_0": 1e-3}


def closing(i: int) -> tuple[float, float]:
    """Spread and cosine of outputs that become alike within ten steps."""
    return (0.5, 0.7) if i < 10 else (0.05, 0.995)


def run_of(
    outputs: Callable[[int], tuple[float, float]] = closing,
    *,
    loss: Callable[[int], float] = lambda i: 0.9**i,
    objective: Mapping[str, float] | None = None,
    optimizer: Mapping[str, float] | None = None,
    size: Callable[[int], float] = lambda _: 1.0,
    shape: tuple[int, ...] = (16,),
    steps: int = 150,
    every: int = 1,
    mode: Mode = Mode.TRAIN,
) -> list[Observation]:
    script, run = Script(tensor("output/0", "outputs", shape)), []
    for i in range(0, steps, every):
        spread, cosine = outputs(i)
        batch = {"output/0.batch_spread": spread, "output/0.cosine": cosine,
                 "input/0.min": 0.0, "input/0.max": 1.0}  # fmt: skip
        facts = {"batch": batch, "objective": objective or {}, "optimizer": optimizer or {}}
        values = {"output/0": size(i)}
        run.append(script.step(i, values, loss=loss(i), scalars=facts, mode=mode))
    return run


def told(run: list[Observation]) -> list[tuple[int, str]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


def half(i: int) -> float:
    return 0.5 + 0.5 * 0.8**i


REBUILT = {"mse_loss.target_min": 0.0, "mse_loss.target_max": 1.0}
OTHER = {"mse_loss.target_min": 0.0, "mse_loss.target_max": 50.0}
TRIVIAL, MODES = [(40, "trivial_optimum")], [(40, "mode_collapse")]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(run_of(), TRIVIAL, id="no-negatives"),
        pytest.param(run_of(objective={"triplet_margin_loss.input_size": 9.0}), TRIVIAL,
                     id="triplets"),
        pytest.param(run_of(lambda _: (0.5, 0.7)), [], id="outputs-that-differ"),
        pytest.param(run_of(lambda _: (0.05, 0.995)), [], id="alike-from-the-start"),
        pytest.param(run_of(lambda i: (0.5, 0.7) if i < 10 else (0.4, 0.995)), [],
                     id="spread-that-remains"),
        pytest.param(run_of(lambda i: closing(10 if i % 9 else 0)), [], id="now-and-then"),
        pytest.param(run_of(lambda i: (0.5, 0.7) if i < 10 else (0.0, NAN)), TRIVIAL, id="zero"),
        pytest.param(run_of(loss=lambda _: 1.0), [], id="nothing-learned-is-not-this"),
        pytest.param(run_of(loss=lambda i: 1.0 - i), [], id="a-loss-of-either-sign"),
        pytest.param(run_of(loss=half), [(90, "posterior_collapse")], id="nobody-knows-the-loss"),
        pytest.param(run_of(loss=half, objective=REBUILT), [(90, "posterior_collapse")],
                     id="the-input-is-rebuilt"),
        pytest.param(run_of(objective=OTHER), [], id="a-regression-whose-targets-may-be-alike"),
        pytest.param(run_of(objective={"cross_entropy.classes": 10.0}), [], id="a-classifier"),
        pytest.param(run_of(size=lambda i: 1.0 if i < 10 else 50.0), [], id="an-offset-is-learned"),
        pytest.param(run_of(shape=(1,)), [], id="one-number"),
        pytest.param(run_of(shape=()), [], id="a-number"),
        pytest.param(run_of(shape=(2,)), [], id="a-mean-and-a-variance"),
        pytest.param(run_of(shape=(2,), optimizer=PLAYERS), MODES, id="points-of-a-generator"),
        pytest.param(run_of(optimizer=PLAYERS, loss=lambda _: 0.7), MODES, id="one-mode"),
        pytest.param(run_of(lambda i: (0.5, 0.7) if i < 10 else (0.2, 0.99), optimizer=PLAYERS),
                     [], id="few-modes"),
        pytest.param(run_of(lambda _: (NAN, INF)), [], id="nan"),
        pytest.param(run_of(mode=Mode.EVAL), [], id="evaluations"),
    ],
)  # fmt: skip
def test_kinds(run: list[Observation], expected: list[Any]) -> None:
    assert told(run) == expected


def test_the_same_verdict_at_wider_intervals() -> None:
    wide = run_of(lambda i: closing(i // 10), every=10, steps=800, loss=lambda i: 0.98**i)
    assert fired(RULE, wide) == [140]


def test_the_message_says_how_alike_they_are_and_were() -> None:
    (finding,) = fold(RULE, run_of())[1]
    assert (finding.tensor, finding.first_step) == ("output/0", 10)
    assert "a cosine of 0.995, 0.70 at the start" in finding.message
