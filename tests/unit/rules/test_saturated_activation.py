from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.saturated_activation import SaturatedActivation
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.reductions import row

RULE = SaturatedActivation()
SIZE = 20


def run_of(
    *shares: float,
    every: int = 10,
    kind: str = "Tanh",
    depth: int = 1,
    fall: float = 1.0,
    gradient: Sequence[float] = (0.1,),
    mode: Mode = Mode.TRAIN,
    optimizer: Any = None,
) -> list[Observation]:
    """Share of saturated elements of one layer at each saved step; matrices lie at 0 to 2."""
    info = tensor("activation/f", "activations", (SIZE,), kind=kind, depth=depth)
    script, run = Script(*matrices("a", "b", "c"), info), []
    for i, share in enumerate(shares):
        values = {f"gradient/{n}": gradient[min(i, len(gradient) - 1)] for n in "abc"}
        obs = script.step(i * every, {**values, "activation/f": 0.0}, loss=2.3 * fall**i, mode=mode,
                          scalars={"optimizer": optimizer or {"lr_0": 0.1}})  # fmt: skip
        x = np.where(np.arange(SIZE) < round(share * SIZE), 1.0, 0.5).astype(np.float32)
        where = obs.layout.row_of["activation/f"]
        obs.stats[where] = row(x, dtype="float32", bounds=(-0.96, 0.96))
        run.append(obs)
    return run


@pytest.mark.parametrize(
    ("shares", "more", "kinds"),
    [
        pytest.param([0.3] * 20, {}, [], id="as-usual"),
        pytest.param([0.8] * 20, {}, [(40, "from_start")], id="from-the-start"),
        pytest.param([0.8] * 30, {"every": 1}, [(10, "from_start")], id="every-step"),
        pytest.param([0.8] * 30, {"every": 50}, [(100, "from_start")], id="every-50th"),
        pytest.param([0.8] * 20, {"fall": 0.7}, [], id="from-the-start-but-it-learns"),
        pytest.param([0.3] + [0.8] * 20, {}, [], id="later-and-not-all"),
        pytest.param([0.3] + [1.0] * 20, {}, [(100, "stuck")], id="stuck"),
        pytest.param([0.3] + [1.0] * 20, {"fall": 0.97}, [], id="later-and-it-learns"),
        pytest.param([0.8] * 3 + [0.1] + [0.8] * 20, {}, [], id="recovery-is-not-a-start"),
        pytest.param([1.0] * 20, {"kind": "Hardtanh"}, [], id="hard-ones-stand-there-by-design"),
        pytest.param([1.0] * 20, {"mode": Mode.EVAL}, [], id="evaluation"),
    ],
)
def test_hidden_layers(
    shares: Sequence[float], more: dict[str, Any], kinds: list[tuple[int, str]]
) -> None:
    found = fold(RULE, run_of(*shares, **more))[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == kinds


SHRINKING = (0.1, 0.1, 1e-3)


@pytest.mark.parametrize(
    ("more", "fired_at"),
    [
        pytest.param({"gradient": SHRINKING}, [40], id="and-the-gradients-shrink"),
        pytest.param({"gradient": (0.1,)}, [], id="a-classifier-near-0-and-1"),
        pytest.param({"gradient": SHRINKING, "fall": 0.8}, [], id="converged"),
        pytest.param({"gradient": (NAN,)}, [], id="nan"),
        pytest.param(
            {"gradient": SHRINKING, "optimizer": {"lr_0": 1.0, "1.lr_0": 1.0}}, [], id="gan"
        ),
    ],
)
def test_an_output_layer(more: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*[1.0] * 20, depth=3, **more)) == fired_at


def test_the_finding_says_at_which_end() -> None:
    (finding,) = fold(RULE, run_of(*[0.8] * 20))[1]
    assert finding.tensor == "activation/f"
    assert finding.value == pytest.approx(0.8)
    assert (finding.evidence["low"], finding.evidence["high"]) == (0.0, 0.8)


def test_a_layer_is_told_again_after_it_recovered() -> None:
    shares = [0.1] + [1.0] * 12 + [0.1] + [1.0] * 12
    assert fired(RULE, run_of(*shares)) == [100, 230]


def test_layers_without_bounds_are_not_judged() -> None:
    run = []
    for obs in run_of(*[1.0] * 20):
        stats = obs.stats.copy()
        stats[:, INDEX["n_sat_lo"]] = stats[:, INDEX["n_sat_hi"]] = NAN
        run.append(replace(obs, stats=stats))
    assert fired(RULE, run) == []


@pytest.mark.parametrize(
    ("shares", "fired_at"),
    [([0.6, 0.6], [0]), ([0.4, 0.6, 0.4, 0.6], [10, 30]), ([0.5, 0.5], [])],
)
def test_a_threshold_has_sagemakers_meaning(shares: Sequence[float], fired_at: list[int]) -> None:
    assert fired(SaturatedActivation(threshold_layer=50.0), run_of(*shares)) == fired_at


def test_a_pattern_chooses_layers() -> None:
    one, other = (SaturatedActivation(tensor_regex=(p,)) for p in ("activation/f", "activation/g"))
    assert fired(one, run_of(*[0.8] * 20)) == [40]
    assert fired(other, run_of(*[0.8] * 20)) == []
