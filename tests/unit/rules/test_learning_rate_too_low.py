from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices
from trainwarden.model import Layout, Observation, TensorInfo
from trainwarden.rules.learning_rate_too_low import LearningRateTooLow

RULE = LearningRateTooLow()
NAMES = "abcd"
TEN = {"label/0": dict.fromkeys(range(10), 6)}


def run_of(
    ratio: float,
    saves: int = 20,
    *,
    every: int = 10,
    loss: float = 2.3,
    fall: float = 1.0,
    gradients: tuple[float, ...] = (0.1, 0.1, 0.1, 0.1),
    tensors: tuple[TensorInfo, ...] = matrices(*NAMES),
    rates: tuple[float, ...] = (1e-4,),
    labels: Any = TEN,
    scalars: Any = None,
) -> list[Observation]:
    """Every weight moves by ``ratio`` of itself a step."""
    script, run = Script(*tensors), []
    for i in range(saves):
        values = dict.fromkeys(NAMES, (1.0 + ratio * every) ** i)
        values |= {f"gradient/{n}": g for n, g in zip(NAMES, gradients, strict=True)}
        optimizer = {"lr_0": rates[min(i, len(rates) - 1)]}
        more = {"optimizer": optimizer, **(scalars or {})}
        run.append(script.step(i * every, values, loss=loss * fall**i, labels=labels, scalars=more))
    return run


@pytest.mark.parametrize(
    ("given", "fired_at"),
    [
        pytest.param({"ratio": 1e-5}, [60], id="tiny"),
        pytest.param({"ratio": 1e-5, "every": 1, "saves": 90}, [51], id="every-step"),
        pytest.param({"ratio": 1e-5, "every": 50}, [250], id="every-50th"),
        pytest.param({"ratio": 9e-4}, [], id="slow-and-sound"),
        pytest.param({"ratio": 1e-5, "fall": 0.98}, [], id="it-learns"),
        pytest.param({"ratio": 0.0}, [], id="at-rest-is-another-rules-business"),
        pytest.param({"ratio": 1e-5, "loss": 0.2}, [], id="trained-already"),
        pytest.param({"ratio": 1e-5, "loss": -2.3}, [], id="a-loss-of-either-sign"),
        pytest.param({"ratio": 1e-5, "loss": NAN}, [], id="nan"),
        pytest.param({"ratio": 5e-5, "labels": None}, [], id="chance-unknown"),
        pytest.param({"ratio": 5e-6, "labels": None}, [60], id="chance-unknown-but-tiny"),
        pytest.param({"ratio": 1e-5, "gradients": (1e-8, 1e-6, 1e-4, 1e-2)}, [], id="vanished"),
        pytest.param({"ratio": 1e-5, "gradients": (0, 0, 0, 0)}, [], id="no-gradient"),
        pytest.param({"ratio": 1e-5, "rates": (1e-4, 1e-6)}, [], id="the-rate-has-fallen"),
        pytest.param(
            {"ratio": 1e-5, "rates": tuple(1e-6 * i for i in range(1, 21))}, [], id="warm-up"
        ),
    ],
)
def test_fires_at(given: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(**given)) == fired_at


def test_the_finding_says_how_long_a_tenth_takes() -> None:
    (finding,) = fold(RULE, run_of(1e-5))[1]
    assert finding.first_step == 10
    assert finding.evidence["steps_for_a_tenth"] == pytest.approx(10_000, rel=0.1)
    assert "at a learning rate of 0.0001" in finding.message
    assert finding.confidence == 0.9


@pytest.mark.parametrize(("spread", "fired_at"), [(1.0, [60]), (10.0, [])])
def test_a_regression_starts_near_the_spread_of_its_targets(
    spread: float, fired_at: list[int]
) -> None:
    told = {"objective": {"mse_loss.target_std": spread}}
    assert fired(RULE, run_of(5e-5, loss=1.0, labels=None, scalars=told)) == fired_at


@pytest.mark.parametrize(("count", "fired_at"), [(10.0, [60]), (1000.0, [])])
def test_classes_told_by_the_loss_come_first(count: float, fired_at: list[int]) -> None:
    told = {"objective": {"cross_entropy.classes": count}}
    assert fired(RULE, run_of(1e-5, scalars=told)) == fired_at


def test_weights_of_low_precision_are_another_rules_business() -> None:
    low = tuple(replace(t, dtype="bfloat16") for t in matrices(*NAMES))
    run = run_of(1e-5)
    run = [replace(obs, layout=Layout(low)) for obs in run]
    assert fired(RULE, run) == []


@pytest.mark.parametrize(
    "scalars",
    [{"optimizer": {"lr_0": 1e-4, "1.lr_0": 1e-4}}, {"loop": {"stepped": 0.0}}],
)
def test_adversaries_and_loops_without_steps_are_not_judged(scalars: Any) -> None:
    assert fired(RULE, run_of(1e-5, scalars=scalars)) == []
