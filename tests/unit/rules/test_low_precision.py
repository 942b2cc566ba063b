from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.low_precision import LowPrecision

RULE = LowPrecision()
NAMES = "abcd"
RELU = tensor("activation/relu", "activations", (4,), kind="ReLU")


def run_of(
    saves: int = 9,
    every: int = 10,
    *,
    weights: str = "float32",
    activations: str = "float16",
    gradient: float = 0.1,
    moved: float = 0.1,
    activation: Any = 1.0,
    loss: float = 2.3,
    fall: float = 1.0,
    **optimizer: float,
) -> list[Observation]:
    """Weights of ``weights`` type move by ``moved`` a step."""
    low = tuple(replace(t, dtype=weights) for t in matrices(*NAMES))
    script, run = Script(*low, replace(RELU, dtype=activations)), []
    told = {"optimizer": {"lr_0": 0.1, "adaptive_0": 0.0, **optimizer}}
    for i in range(saves):
        values = dict.fromkeys(NAMES, 1.0 + moved * every * i)
        values |= {f"gradient/{n}": gradient for n in NAMES}
        values["activation/relu"] = activation
        run.append(script.step(i * every, values, loss=loss * fall**i, scalars=told))
    return run


def kinds(run: Sequence[Observation]) -> list[tuple[int, Any]]:
    return [(f.step, f.evidence["kind"]) for f in fold(RULE, run)[1]]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param({}, [], id="sound"),
        pytest.param({"gradient": 0.0}, [(20, "fp16_underflow")], id="zero"),
        pytest.param({"gradient": 1e-5}, [], id="small-but-there"),
        pytest.param({"gradient": 0.0, "loss_scale": 65536.0}, [], id="scaled"),
        pytest.param({"gradient": 0.0, "fall": 0.8}, [], id="it-learns"),
        pytest.param({"gradient": 0.0, "activations": "float32"}, [], id="not-fp16"),
        pytest.param({"gradient": 0.0, "activations": "bfloat16"}, [], id="bf16-has-the-range"),
        pytest.param({"gradient": NAN}, [], id="nan"),
        pytest.param({"gradient": 0.0, "loss": NAN}, [], id="no-loss-to-judge"),
    ],
)
def test_gradients_below_fp16(given: dict[str, Any], found: list[tuple[int, str]]) -> None:
    assert kinds(run_of(**given)) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param({"moved": 0.0}, [(30, "bf16_swallows_update")], id="nothing-moves"),
        pytest.param({"moved": 0.0, "every": 1, "saves": 30}, [(21, "bf16_swallows_update")],
                     id="every-step"),
        pytest.param({"moved": 1e-4}, [(30, "bf16_swallows_update")], id="little-moves"),
        pytest.param({"moved": 0.01}, [], id="as-asked"),
        pytest.param({"moved": 0.0, "gradient": 0.0}, [], id="nothing-was-asked-for"),
        pytest.param({"moved": 0.0, "lr_0": 0.0}, [], id="rate-0"),
        pytest.param({"moved": 0.0, "lr_0": NAN}, [], id="rate-unknown"),
        pytest.param({"moved": 0.0, "fall": 0.9}, [], id="it-learns"),
        pytest.param({"moved": 0.0, "weights": "float32"}, [], id="float32"),
        pytest.param({"moved": 1e-3, "gradient": 1e-2, "adaptive_0": 1.0},
                     [(30, "bf16_swallows_update")], id="adam-asks-for-the-rate"),
    ],
)  # fmt: skip
def test_updates_that_are_rounded_away(given: dict[str, Any], found: list[tuple[int, str]]) -> None:
    assert kinds(run_of(**{"weights": "bfloat16", "activations": "bfloat16", **given})) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"eps_0": 1e-8, "adaptive_0": 1.0}, [(0, "adam_eps")]),
        ({"eps_0": 1e-4, "adaptive_0": 1.0}, []),
        ({"eps_0": 1e-8, "adaptive_0": 0.0}, []),
        ({"eps_0": 1e-8, "adaptive_0": 1.0, "weights": "float32"}, []),
        ({"eps_0": 1e-8, "adaptive_0": 1.0, "weights": "bfloat16"}, []),
        ({"eps_0": NAN, "adaptive_0": 1.0}, []),
    ],
)
def test_an_eps_that_is_zero(given: dict[str, Any], found: list[tuple[int, str]]) -> None:
    assert kinds(run_of(**{"weights": "float16", **given})) == found


OVER = np.array([1.0, INF, 3.0, 4.0])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"loss": NAN}, [(0, "fp16_overflow")]),
        ({"gradient": NAN}, [(0, "fp16_overflow")]),
        ({}, []),
        ({"loss": NAN, "activations": "float32"}, []),
        ({"loss": NAN, "loss_scale": 65536.0}, [(20, "fp16_overflow")]),
    ],
)
def test_activations_beyond_fp16(given: dict[str, Any], found: list[tuple[int, str]]) -> None:
    assert kinds(run_of(activation=OVER, **given)) == found


@pytest.mark.parametrize(
    ("scales", "found"),
    [
        ([2.0**-i for i in range(9)], [(10, "loss_scale_collapse")]),
        ([65536.0 / 2**i for i in range(9)], []),
        ([NAN] * 9, []),
    ],
)
def test_a_loss_scale_that_collapses(scales: list[float], found: list[tuple[int, str]]) -> None:
    run = [
        obs
        for i, scale in enumerate(scales)
        for obs in run_of(loss_scale=scale, found_inf=1.0)[i : i + 1]
    ]
    assert kinds(run) == found


def test_steps_that_gradscaler_skipped_do_not_count() -> None:
    assert kinds(run_of(gradient=0.0, found_inf=1.0)) == []


def test_the_finding_says_what_to_do_about_its_kind() -> None:
    (finding,) = fold(RULE, run_of(gradient=0.0))[1]
    assert "GradScaler" in finding.remedies[0]
    assert (finding.tensor, finding.value) == ("gradient/a", 1.0)
    (finding,) = fold(RULE, run_of(weights="bfloat16", moved=0.0))[1]
    assert "autocast" in finding.remedies[0]
    assert (finding.tensor, finding.first_step) == ("a", 10)


def test_what_computes_in_float32_has_nothing_to_lose() -> None:
    run = run_of(activations="float32", gradient=0.0)
    assert all(RULE.inspects(obs) for obs in run)
    assert not RULE.inspects(replace(run[0], mode=Mode.EVAL))
    assert fired(RULE, run) == []
