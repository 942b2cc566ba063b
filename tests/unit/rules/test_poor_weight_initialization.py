from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation, TensorInfo
from trainwarden.rules.poor_weight_initialization import PoorWeightInitialization
from trainwarden.stats.reductions import row

RULE = PoorWeightInitialization()
NAMES = "abcd"
SHAPE = (16, 16)
TEN = {"label/0": dict.fromkeys(range(10), 6)}
HIGH: dict[str, Any] = {"loss": 30.0}


def weights(std: float, names: str = NAMES) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {n: rng.normal(size=SHAPE).astype(np.float32) * std for n in names}


def run_of(
    given: Mapping[str, Any],
    *,
    saves: int = 12,
    every: int = 10,
    gradient: float = 0.1,
    pull: float = 1.0,
    activations: Sequence[float] = (1.0, 1.0, 1.0),
    loss: float = 2.3,
    fall: float = 1.0,
    labels: Any = TEN,
    kind: str = "Linear",
    first: bool = True,
) -> list[Observation]:
    """``given`` are the first weights; matrices lie in forward order."""
    infos: tuple[TensorInfo, ...] = tuple(
        replace(t, shape=SHAPE, kind=kind) for t in matrices(*NAMES)
    )
    acts = tuple(tensor(f"activation/{i}", "activations", (16,)) for i in range(len(activations)))
    script, run = Script(*infos, *acts), []
    for i in range(saves):
        values = {**given, **{f"gradient/{n}": gradient * pull**i for n in NAMES}}
        values |= {a.name: v for a, v in zip(acts, activations, strict=True)}
        obs = script.step(i * every, values, loss=loss * fall**i, labels=labels)
        for name in NAMES if i == 0 and first else ():
            obs.stats[obs.layout.row_of[name]] = row(
                np.ascontiguousarray(np.broadcast_to(given[name], SHAPE), dtype=np.float32),
                dtype="float32", per_unit=True,
            )  # fmt: skip
        run.append(obs)
    return run


SOUND = weights(0.25)  # scale 1


@pytest.mark.parametrize(
    ("given", "more", "kinds"),
    [
        pytest.param(SOUND, {}, [], id="sound-and-stuck-for-another-reason"),
        pytest.param(SOUND, HIGH, [], id="sound-and-high-for-another-reason"),
        pytest.param(dict.fromkeys(NAMES, 0.1), {}, [(20, "identical")], id="one-constant"),
        pytest.param({**SOUND, "d": 0.1}, {}, [], id="only-the-last-is-constant"),
        pytest.param({**SOUND, "b": 0.1}, {}, [], id="one-hidden-of-three"),
        pytest.param(dict.fromkeys(NAMES, 0.1), {"fall": 0.5}, [], id="constant-and-it-learns"),
        pytest.param(dict.fromkeys(NAMES, 0.0), {"gradient": 0.0}, [(20, "zero")], id="all-zero"),
        pytest.param({**SOUND, "b": 0.0, "d": 0.0}, {}, [], id="zero-branches-heal"),
        pytest.param({**SOUND, "d": 0.0}, {"gradient": 0.0}, [], id="a-last-layer-of-zeros"),
        pytest.param(weights(5.0), HIGH, [(10, "large")], id="large"),
        pytest.param(
            weights(1e-3), {"activations": ()}, [(20, "shrinking")], id="small-and-linear"
        ),
        pytest.param(
            weights(1e-3), {"activations": (), "pull": 1.4}, [], id="small-on-purpose-and-it-leaves"
        ),
        pytest.param(
            weights(1e-3),
            {"activations": (), "pull": 0.9},
            [(20, "shrinking")],
            id="small-and-it-fades",
        ),
        pytest.param(
            SOUND,
            {"activations": (1.0, 1e-3, 1e-5), "pull": 1.4},
            [(20, "shrinking")],
            id="a-signal-that-is-lost-whatever-the-gradient",
        ),
        pytest.param(weights(5.0), {}, [], id="large-and-the-loss-is-that-of-a-guess"),
        pytest.param(weights(5.0), {"labels": None}, [(20, "large")], id="large-and-stuck"),
        pytest.param(weights(5.0), {"labels": None, "fall": 0.7}, [], id="large-and-it-learns"),
        pytest.param(weights(5.0), {"loss": NAN}, [(0, "large")], id="large-and-not-finite"),
        pytest.param(weights(1e-3), {}, [(20, "shrinking")], id="small"),
        pytest.param(weights(1e-3), {"fall": 0.9}, [], id="small-and-it-learns"),
        pytest.param(dict.fromkeys(NAMES, NAN), {}, [], id="nan"),
    ],
)
def test_fires_at(
    given: Mapping[str, Any], more: dict[str, Any], kinds: list[tuple[int, str]]
) -> None:
    found = fold(RULE, run_of(given, **more))[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == kinds


@pytest.mark.parametrize(
    ("activations", "more", "kinds"),
    [
        ((1.0, 9.0, 90.0), HIGH, [(10, "growing")]),
        ((1.0, 9.0, 90.0), {}, []),
        ((1.0, 2.0, 3.0), HIGH, []),
        ((1.0, 90.0), HIGH, []),
        ((1.0, 0.1, 0.001), {}, [(20, "shrinking")]),
        ((1.0, 0.1, 0.001), {"fall": 0.9}, []),
        ((1.0, 0.1, 0.0), {}, []),
        ((0.0, 0.1, 9.0), HIGH, []),
        ((1.0, NAN, NAN), HIGH, []),
    ],
)
def test_the_signal_from_layer_to_layer(
    activations: Sequence[float], more: dict[str, Any], kinds: list[tuple[int, str]]
) -> None:
    found = fold(RULE, run_of(SOUND, activations=activations, **more))[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == kinds


@pytest.mark.parametrize("every", [1, 10, 50])
def test_the_same_verdict_at_any_interval(every: int) -> None:
    run = run_of(weights(1e-3), every=every, saves=40)
    (finding,) = fold(RULE, run)[1]
    assert finding.evidence["kind"] == "shrinking"
    assert finding.step == max(20, 2 * every)


def test_the_scale_is_that_of_numpy() -> None:
    (finding,) = fold(RULE, run_of(weights(5.0), **HIGH))[1]
    want = max(np.sqrt(np.mean(w**2)) * 4 for w in weights(5.0).values())
    assert finding.value == pytest.approx(want, rel=1e-4)
    assert finding.tensor in NAMES
    assert finding.first_step == 0


def test_parameters_of_a_users_own_layer_have_no_fan_in() -> None:
    assert fired(RULE, run_of(weights(5.0), kind="MyTokens", **HIGH)) == []


def test_without_rows_told_apart_at_the_start_nothing_is_identical() -> None:
    assert fired(RULE, run_of(dict.fromkeys(NAMES, 0.1), first=False)) == []


def test_evaluation_passes_are_not_looked_at() -> None:
    run = [replace(o, mode=Mode.EVAL) for o in run_of(weights(5.0), **HIGH)]
    assert fired(RULE, run) == []


THEIRS = PoorWeightInitialization(**dict(RULE.meta.sagemaker or {}))


@pytest.mark.parametrize(("fall", "fired_at"), [(0.9, []), (1.0, [5])])
def test_given_a_threshold_it_has_sagemakers_meaning(fall: float, fired_at: list[int]) -> None:
    rng = np.random.default_rng(2)
    wide = {f"gradient/{n}": rng.normal(size=SHAPE) for n in NAMES}
    script = Script(*(replace(t, shape=SHAPE) for t in matrices(*NAMES)))
    run = [script.step(i, {**SOUND, **wide}, loss=2.3 * fall**i) for i in range(9)]
    assert fired(THEIRS, run) == fired_at


def test_in_sagemakers_meaning_a_narrow_gradient_and_a_spread_of_variances_count() -> None:
    script = Script(*(replace(t, shape=SHAPE) for t in matrices(*NAMES)))
    narrow = [script.step(0, {**SOUND, "gradient/a": 0.5}, loss=2.3)]
    (finding,) = fold(THEIRS, narrow)[1]
    assert finding.tensor == "gradient/a"
    scale = Script(tensor("s", "weights", (1,)), tensor("gradient/s", "gradients", (1,)))
    assert fired(THEIRS, [scale.step(0, {"s": [1.0], "gradient/s": [0.5]}, loss=2.3)]) == []
    acts = tuple(tensor(f"activation/{i}", "activations", (2,)) for i in range(2))
    spread = [Script(*acts).step(0, {"activation/0": [-1, 1], "activation/1": [-4, 4]}, loss=2.3)]
    (finding,) = fold(THEIRS, spread)[1]
    assert finding.tensor == "activation/1"
    assert finding.value == pytest.approx(16.0)
