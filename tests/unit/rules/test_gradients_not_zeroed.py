from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rules.runs import FACTS, INF, NAN, Script, fired, fold
from trainwarden.model import Mode, Observation
from trainwarden.rules.gradients_not_zeroed import GradientsNotZeroed

RULE = GradientsNotZeroed()


def run_of(carried: Sequence[float | None], *, every: int = 1) -> list[Observation]:
    """One value of the fact a saved step; None where it is not known."""
    known = [{} if c is None else {"loop": {"gradients_carried": c}} for c in carried]
    return [Script().step(i * every, scalars=facts) for i, facts in enumerate(known)]


@pytest.mark.parametrize(
    ("carried", "fired_at"),
    [
        pytest.param([0] * 9, [], id="zeroed"),
        pytest.param([0, 1, 1, 1, 1, 1], [3], id="never-zeroed-is-told-once"),
        pytest.param([1, 1, 1], [2], id="even-if-the-first-step-was-not-seen"),
        pytest.param([0, 1, 1, 0] * 5, [], id="now-and-then-is-somebody-s-intention"),
        pytest.param([0, 1, None, 1, None, 1], [5], id="unknown-steps-are-passed-over"),
        pytest.param([NAN, INF, -1, 0.5] * 3, [], id="numbers-that-say-nothing"),
        pytest.param([None] * 9, [], id="unknown"),
    ],
)
def test_fires_at(carried: list[float | None], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(carried)) == fired_at


def test_the_first_carried_step_is_named() -> None:
    (finding,) = fold(RULE, run_of([0, 1, 1, 1], every=50))[1]
    assert (finding.step, finding.first_step) == (150, 50)
    assert "zero_grad() is not called" in finding.message
    assert finding.evidence == {"kind": "not_zeroed", "saved_steps": 3}


def test_steps_that_gradscaler_skipped_and_evaluations_do_not_count() -> None:
    facts = {"loop": {"gradients_carried": 1.0}}
    inf = {**facts, "optimizer": {"found_inf": 1.0}}
    assert fired(RULE, [Script().step(i, scalars=inf) for i in range(9)]) == []
    assert fired(RULE, [Script().step(i, scalars=facts, mode=Mode.EVAL) for i in range(9)]) == []


def test_it_is_inspected_where_the_fact_is() -> None:
    assert RULE.inspects(Script().step(0, scalars=FACTS))
    assert not RULE.inspects(Script().step(0, scalars={"loop": {"parameters": 3.0}}))
