from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rules.runs import NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.distribution_shift import DistributionShift

RULE = DistributionShift()


def run_of(
    shifts: Sequence[float], losses: Sequence[float], mode: Mode = Mode.TRAIN
) -> list[Observation]:
    return [
        Script().step(10 * i, loss=loss, scalars={"batch": {"input/0.shift": shift}}, mode=mode)
        for i, (shift, loss) in enumerate(zip(shifts, losses, strict=True))
    ]


USUAL = [0.2, 0.25, 0.15, 0.2, 0.3] * 4
FINE, BAD = [0.5] * 20, [1.0] * 10


@pytest.mark.parametrize(
    ("shifts", "losses", "fires"),
    [
        pytest.param([*USUAL, *[3.0] * 10], [*FINE, *BAD], [230], id="a-jump-that-hurts"),
        pytest.param([*USUAL, *[3.0] * 10], [*FINE, *FINE[:10]], [], id="a-jump-that-does-not"),
        pytest.param([*USUAL, *[0.4] * 10], [*FINE, *BAD], [], id="a-loss-that-rises-alone"),
        pytest.param([*USUAL, 3.0, 3.0, *USUAL[:8]], [*FINE, *BAD], [], id="two-odd-batches"),
        pytest.param([i / 10 for i in range(30)], [*FINE, *BAD], [], id="slow-drift"),
        pytest.param([*USUAL, *[3.0] * 10], [*FINE, -1.0, *BAD[1:]], [], id="a-surrogate-loss"),
        pytest.param([*USUAL, *[NAN] * 10], [*FINE, *BAD], [], id="unknown"),
        pytest.param([3.0] * 30, [*FINE, *BAD], [], id="as-in-the-beginning"),
    ],
)
def test_fires_at(shifts: list[float], losses: list[float], fires: list[int]) -> None:
    assert fired(RULE, run_of(shifts, losses)) == fires


def test_the_finding_says_since_when_and_what_the_loss_did() -> None:
    (finding,) = fold(RULE, run_of([*USUAL, *[3.0] * 10], [*FINE, *BAD]))[1]
    assert (finding.first_step, finding.value) == (200, 3.0)
    assert (finding.evidence["loss_before"], finding.evidence["loss"]) == (0.5, 1.0)


def test_evaluation_is_left_alone() -> None:
    assert fired(RULE, run_of([*USUAL, *[3.0] * 10], [*FINE, *BAD], Mode.EVAL)) == []
