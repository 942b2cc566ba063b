from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices, tensor
from trainwarden.model import Mode, Observation
from trainwarden.rules.tensor_variance import TensorVariance

RULE = TensorVariance()
SIGNS = np.array([1.0, -1.0] * 8).reshape(4, 4)  # variance 1


def test_a_single_number_has_no_variance_to_be_too_small() -> None:
    rule = TensorVariance(min_threshold=0.5, collection_names=("weights",))
    run = [Script(tensor("scale", "weights", (1,))).step(0, {"scale": [3.0]}, loss=2.3)]
    assert fired(rule, run) == []


def run_of(
    *stds: float, every: int = 10, fall: float = 1.0, mode: Mode = Mode.TRAIN
) -> list[Observation]:
    """Weights of matrix ``a`` have the standard deviation given, those of ``b`` 0.5."""
    script = Script(*matrices("a", "b"))
    return [
        script.step(i * every, {"a": SIGNS * s, "b": SIGNS * 0.5}, loss=2.3 * fall**i, mode=mode)
        for i, s in enumerate(stds)
    ]


@pytest.mark.parametrize(
    ("stds", "more", "fired_at"),
    [
        pytest.param([0.1] * 9, {}, [], id="at-rest"),
        pytest.param([0.1] + [5.0] * 8, {}, [40], id="spread"),
        pytest.param([0.1] + [5.0] * 8, {"fall": 0.9}, [], id="it-learns"),
        pytest.param([1.0] + [5.0] * 8, {}, [], id="not-grown-enough"),
        pytest.param([0.1] + [2.0] * 8, {}, [], id="not-large-enough"),
        pytest.param([0.1, 5.0, 5.0, 0.1] + [5.0] * 4, {}, [70], id="recovery-resets"),
        pytest.param([0.1] + [1e-4] * 8, {}, [40], id="collapsed"),
        pytest.param([2e-4] + [1e-4] * 8, {}, [], id="small-from-the-start"),
        pytest.param([0.0] + [5.0] * 8, {}, [], id="from-zero-at-once"),
        pytest.param([0.0, 0.1] + [5.0] * 8, {}, [50], id="spread-after-a-start-at-zero"),
        pytest.param([NAN] * 9, {}, [], id="nan"),
        pytest.param([0.1] + [INF] * 8, {}, [], id="infinity"),
        pytest.param([0.1] + [5.0] * 8, {"mode": Mode.EVAL}, [], id="evaluation"),
        pytest.param([0.1] + [5.0] * 50, {"every": 1}, [31], id="every-step"),
        pytest.param([0.1] + [5.0] * 50, {"every": 50}, [150], id="every-50th"),
    ],
)
def test_fires_at(stds: Sequence[float], more: dict[str, Any], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*stds, **more)) == fired_at


@pytest.mark.parametrize(("std", "kind"), [(5.0, "spread"), (1e-4, "collapsed")])
def test_the_finding_says_from_what_to_what(std: float, kind: str) -> None:
    (finding,) = fold(RULE, run_of(0.1, *[std] * 8))[1]
    assert (finding.tensor, finding.first_step, finding.evidence["kind"]) == ("a", 10, kind)
    assert finding.value == pytest.approx(std**2, rel=1e-3)
    assert finding.evidence["at_start"] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("given", "stds", "fired_at"),
    [
        ({"max_threshold": 4.0}, [1, 3, 3, 1, 3], [10, 40]),
        ({"min_threshold": 0.5}, [1, 0.1], [0, 10]),  # b is under it from the start
        ({"min_threshold": 0.5, "tensor_regex": ("a",)}, [1, 0.1], [10]),
        ({"max_threshold": 4.0, "collection_names": ("gradients",)}, [9], []),
        ({"max_threshold": 4.0}, [NAN], []),
    ],
)
def test_given_limits_have_sagemakers_meaning(
    given: dict[str, Any], stds: Sequence[float], fired_at: list[int]
) -> None:
    assert fired(TensorVariance(**given), run_of(*stds)) == fired_at
