from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
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
TRIVIAL, MODES = [(55, "trivial_optimum")], [(40, "mode_collapse")]


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
        pytest.param(run_of(loss=lambda i: 0.1 - 0.002 * i), [], id="a-loss-that-passes-zero"),
        pytest.param(run_of(loss=lambda i: -min(0.3 + 0.1 * i, 0.99)), [(40, "trivial_optimum")],
                     id="a-cosine-at-its-best"),
        pytest.param(run_of(loss=lambda i: -min(0.3 + 0.1 * i, 0.8)), [],
                     id="a-cosine-that-is-not"),
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


def vae(
    sizes: Callable[[int], tuple[float, float]],
    *,
    cosine: Callable[[int], float] = lambda _: 0.1,
    loss: Callable[[int], float] = lambda i: 0.8 + 0.2 * 0.8**i,
    objective: Mapping[str, float] | None = None,
    inputs: tuple[int, ...] = (16,),
    steps: int = 200,
) -> list[Observation]:
    """``sizes``: deviation over the batch of the rebuilt input, whose own is 1, and of a mean.

    All outputs have a spread of 0.5, so that only their RMS tells their size.
    """
    tensors = (tensor("output/0", "outputs", (16,)), tensor("output/1", "outputs", (4,)),
               tensor("input/0", "inputs", inputs))  # fmt: skip
    script, run = Script(*tensors), []
    numbers = np.linspace(-1, 1, math.prod(inputs)).reshape(inputs)
    for i in range(steps):
        first, second = sizes(i)
        batch = {"output/0.batch_spread": 0.5, "output/0.cosine": cosine(i), "input/0.std": 1.0,
                 "output/1.batch_spread": 0.5, "input/0.min": -9.0, "input/0.max": 9.0}  # fmt: skip
        values: dict[str, Any] = {"output/0": 2 * first, "output/1": 2 * second, "input/0": numbers}
        facts = {"batch": batch, "objective": objective or {}}
        run.append(script.step(i, values, loss=loss(i), scalars=facts))
    return run


def flat(i: int) -> tuple[float, float]:
    return (0.2, 0.1) if i < 10 else (0.05, 0.01)


AVERAGED = {"mse_loss.target_min": -1.0, "mse_loss.target_max": 1.0, "mse_loss.target_std": 1.0}
POSTERIOR = [(90, "posterior_collapse")]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        pytest.param(vae(flat), POSTERIOR, id="flat-beside-the-input-by-shape"),
        pytest.param(vae(flat, objective=AVERAGED), POSTERIOR, id="flat-beside-the-targets"),
        pytest.param(vae(flat, objective={**AVERAGED, "mse_loss.target_std": 0.2}), [],
                     id="targets-that-hardly-vary-either"),
        pytest.param(vae(flat, inputs=(8,)), [], id="not-what-it-was-given"),
        pytest.param(vae(lambda i: (flat(i)[0], 0.1)), [], id="the-mean-still-varies"),
        pytest.param(vae(lambda i: (0.2, flat(i)[1])), [], id="the-outputs-still-vary"),
        pytest.param(vae(lambda i: (flat(i)[0], 0.01 if i < 50 else 0.01 * 1.05 ** (i - 50))), [],
                     id="the-mean-wakes-up"),
        pytest.param(vae(lambda i: (0.05 if i < 80 else 0.09, flat(i)[1])), [],
                     id="alike-at-first-and-growing"),
        pytest.param(vae(flat, loss=lambda _: 1.0), [], id="nothing-learned"),
        pytest.param(vae(flat, steps=60), [], id="not-for-long"),
    ],
)  # fmt: skip
def test_outputs_that_are_flat_beside_what_they_rebuild(
    run: list[Observation], expected: list[Any]
) -> None:
    assert told(run) == expected


def test_a_mean_that_grows_hides_no_outputs_that_grow_apart() -> None:
    def warm_up(i: int) -> float:
        return 0.25 if i < 10 else 2.0  # RMS: a constant picture is learned first

    def outputs(i: int) -> tuple[float, float]:
        return (0.8, 0.4) if i < 10 else (0.25, 0.985)

    def loss(i: int) -> float:
        return 28 + 25 * 0.8**i

    assert told(run_of(outputs, loss=loss, size=warm_up, objective=REBUILT)) == []
    assert told(run_of(outputs, loss=loss, size=lambda _: 0.25, objective=REBUILT)) == POSTERIOR


MARGIN = [(40, "margin")]


@pytest.mark.parametrize(
    ("losses", "spread", "expected"),
    [
        pytest.param(lambda _: 0.5, 0.001, MARGIN, id="rests"),
        pytest.param(
            lambda i: 0.5 * (1 + 0.1 / (i + 1) ** 2), 0.001, [(41, "margin")], id="comes-to-rest"
        ),
        pytest.param(lambda i: 0.5 + 0.01 * (i % 2), 0.001, [], id="differs-by-batch"),
        pytest.param(lambda _: 0.5, 0.05, [], id="apart"),
        pytest.param(lambda _: 0.0, 0.001, MARGIN, id="of-zero"),
    ],
)
def test_a_loss_at_its_margin_over_outputs_at_one_point(
    losses: Callable[[int], float], spread: float, expected: list[Any]
) -> None:
    def outputs(i: int) -> tuple[float, float]:
        return (0.06, 0.996) if i < 10 else (spread, 0.99999)  # alike from the first batch on

    assert told(run_of(outputs, loss=losses)) == expected
    assert told(run_of(outputs, loss=losses, objective={"cross_entropy.classes": 10.0})) == []


def test_embeddings_that_come_apart_again_are_at_no_margin() -> None:
    def outputs(i: int) -> tuple[float, float]:
        return (0.06, 0.996) if i < 10 else (1e-5 * 1.06 ** max(0, i - 20), 0.9999)

    assert told(run_of(outputs, loss=lambda _: 0.5)) == []


def test_the_same_verdict_at_wider_intervals() -> None:
    wide = run_of(lambda i: closing(i // 10), every=10, steps=800, loss=lambda i: 0.98**i)
    assert fired(RULE, wide) == [150]


def test_the_message_says_how_alike_they_are_and_were() -> None:
    (finding,) = fold(RULE, run_of())[1]
    assert (finding.tensor, finding.first_step) == ("output/0", 10)
    assert "a cosine of 0.995, 0.70 at the start" in finding.message
