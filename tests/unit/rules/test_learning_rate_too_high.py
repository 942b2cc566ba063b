from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.rules.runs import INF, NAN, Script, fired, fold, matrices
from trainwarden.model import Mode, Observation
from trainwarden.rules.learning_rate_too_high import LearningRateTooHigh
from trainwarden.stats.catalog import Flag

RULE = LearningRateTooHigh()
NAMES = "abcd"
TENSORS = matrices(*NAMES)
RATE = {"optimizer": {"lr_0": 6.0}}


def run_of(
    ratios: Sequence[float], losses: Sequence[float], every: int = 1, **more: Any
) -> list[Observation]:
    """``ratios[i]`` is by how much of itself each weight moved before saved step i."""
    script, weight, run = Script(*TENSORS), 1.0, []
    for i, (ratio, loss) in enumerate(zip(ratios, losses, strict=True)):
        weight *= 1.0 + ratio
        run.append(script.step(i * every, dict.fromkeys(NAMES, weight), loss=loss,
                               **{"scalars": RATE, **more}))  # fmt: skip
    return run


@pytest.mark.parametrize(
    ("ratios", "losses", "kinds"),
    [
        pytest.param([0, 0.01, 0.01], [2.3, 9, 9], [], id="worse-but-gentle"),
        pytest.param([0, 0.5, 0.5], [2.3, 2.4, 9], [(2, "diverged")], id="diverged"),
        pytest.param([0, 5.0, 0.1], [2.3, 2.4, NAN], [(2, "diverged")], id="not-finite"),
        pytest.param([0] + [0.5] * 4, [2.3] + [3.0] * 4, [(3, "worse")], id="worse"),
        pytest.param([0] + [0.3] * 40, [2.3] * 41, [(25, "stuck")], id="stuck"),
        pytest.param([0] + [0.3] * 40, [2.3 * 0.95**i for i in range(41)], [], id="it-learns"),
        pytest.param([0] + [0.15] * 40, [2.3] * 41, [], id="rough-is-not-violent"),
        pytest.param([0, 0.5, 0.5], [-2.3, 2.4, 9], [], id="a-loss-of-either-sign"),
        pytest.param([0] * 5, [2.3, 9, 9, 9, 9], [], id="at-rest"),
    ],
)
def test_fires_at(
    ratios: Sequence[float], losses: Sequence[float], kinds: list[tuple[int, str]]
) -> None:
    found = fold(RULE, run_of(ratios, losses))[1]
    assert [(f.step, f.evidence["kind"]) for f in found] == kinds


def test_the_finding_names_rate_ratio_and_losses() -> None:
    (finding,) = fold(RULE, run_of([0, 0.5, 0.5], [2.3, 2.4, 9]))[1]
    assert finding.first_step == 1
    assert finding.value == pytest.approx(0.5)
    assert "0.5 times their own size at a learning rate of 6" in finding.message
    assert finding.evidence["loss_at_start"] == 2.3


def test_a_change_over_many_steps_is_divided_by_them() -> None:
    assert fired(RULE, run_of([0, 0.5, 0.5], [2.3, 2.4, 9], every=10)) == []
    assert fired(RULE, run_of([0, 5.0, 0.5], [2.3, 2.4, 9], every=10)) == [20]


def test_an_update_along_an_exploded_gradient_is_not_the_rates_doing() -> None:
    script = Script(*TENSORS)
    run = [
        script.step(i, {**dict.fromkeys(NAMES, w), "gradient/a": g}, loss=loss)
        for i, (w, g, loss) in enumerate([(1, 0.1, 2.3), (1.01, 90, 5), (9, 1, 40), (9.01, 1, 40)])
    ]
    assert fired(RULE, run) == []


def test_one_matrix_of_many_may_be_rewritten() -> None:
    script = Script(*TENSORS)
    run = [
        script.step(i, {**dict.fromkeys("abc", 1 + 1e-3 * i), "d": 2.0**i}, loss=loss)
        for i, loss in enumerate([2.3, 2.4, 9, 9])
    ]
    assert fired(RULE, run) == []


@pytest.mark.parametrize(
    "more",
    [
        {"flags": Flag.SKIPPED, "scalars": {"optimizer": {"found_inf": 1.0}}},
        {"mode": Mode.EVAL},
        {"scalars": {"loop": {"stepped": 0.0}}},
        {"scalars": {"optimizer": {"lr_0": 1.0, "1.lr_0": 1.0}}},
    ],
)
def test_intended_or_unknown_is_not_judged(more: dict[str, Any]) -> None:
    assert fired(RULE, run_of([0, 0.5, 0.5, 0.5], [2.3, 2.4, 9, INF], **more)) == []


def test_a_run_that_was_fine_for_long_is_not_judged_any_more() -> None:
    quiet = [2.3 * 0.99**i for i in range(210)]
    assert fired(RULE, run_of([0.0] * 210 + [0.5] * 3, quiet + [9.0] * 3)) == []


def test_a_divergence_long_after_a_violent_step_has_another_cause() -> None:
    assert fired(RULE, run_of([0, 0.5, 0, 0, 0, 0], [2.3, 2.3, 2.3, 2.3, 2.3, 90])) == []
    assert fired(RULE, run_of([0, 0.5, 0, 0], [2.3, 2.3, 2.3, 90])) == [3]
