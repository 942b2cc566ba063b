from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.runs import Script, fired, fold
from trainwarden.model import Json, Observation
from trainwarden.rules.stalled_training_rule import StalledTrainingRule

RULE = StalledTrainingRule()
SHORT = StalledTrainingRule(threshold=5.0)


def run_of(*times: float) -> list[Observation]:
    script = Script()
    return [script.step(i, time=1e9 + t) for i, t in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "fired_at"),
    [
        pytest.param([0, 1, 2, 1802.5], [3], id="over-half-an-hour"),
        pytest.param([0, 1, 2, 1802], [], id="the-limit-itself-is-fine"),
        pytest.param([*range(0, 15600, 600), 18000], [], id="five-times-the-usual-gap-is-fine"),
        pytest.param([*range(0, 15600, 600), 18001], [26], id="more-than-that-is-not"),
        pytest.param([0, 1, 1501, 1502, 6001], [], id="three-times-a-pause-seen-before"),
        pytest.param([0, 1, 1501, 1502, 6003], [4], id="longer-than-that"),
        pytest.param([0, 1, 2, 2000, 2001, 5000], [3], id="the-same-pause-again-is-known"),
        pytest.param([100, 50, 60, 70], [], id="backwards-after-a-resume"),
        pytest.param([0], [], id="one-step"),
        pytest.param([], [], id="none"),
    ],
)
def test_fires_at(times: list[float], fired_at: list[int]) -> None:
    assert fired(RULE, run_of(*times)) == fired_at


def test_a_dense_start_is_not_the_cadence_of_the_run() -> None:
    script, minutes = Script(), [*range(0, 50, 5), 255, 505]  # 5 minutes a step
    saved = [*range(10), 51, 101]
    run = [script.step(s, time=1e9 + 60 * m) for s, m in zip(saved, minutes, strict=True)]
    assert fired(RULE, run) == []
    state, _ = fold(RULE, run[:10])
    assert waited(RULE, state, 60 * 45 + 29_999.0)[1] == []
    assert len(waited(RULE, state, 60 * 45 + 30_001.0)[1]) == 1


def test_an_explicit_threshold_alone_decides() -> None:
    assert fired(SHORT, run_of(0, 1, 6, 12, 13)) == [3]
    assert fired(SHORT, run_of(0, 10, 20, 30)) == [1, 2, 3]


def waited(rule: StalledTrainingRule, state: Json, *nows: float) -> tuple[Json, list[float]]:
    told = []
    for now in nows:
        state, found = rule.wait(json.loads(json.dumps(state)), 1e9 + now)
        told += [now for _ in found]
    return state, told


def test_silence_is_told_once_and_not_again_when_the_step_comes() -> None:
    state, _ = fold(SHORT, run_of(0, 1))
    state, told = waited(SHORT, state, 3.0, 6.0, 6.5, 60.0)
    assert told == [6.5]
    after = Script().step(2, time=1e9 + 100)
    state, found = SHORT.advance(state, after)
    assert list(found) == []
    assert waited(SHORT, state, 104.0, 106.0)[1] == [106.0]


def test_before_the_first_step_silence_says_nothing() -> None:
    assert waited(RULE, RULE.start(), 1e6)[1] == []


def test_an_evaluator_whose_clock_is_behind_says_nothing() -> None:
    state, _ = fold(SHORT, run_of(100, 101))
    assert waited(SHORT, state, 50.0)[1] == []


def test_the_finding_says_how_long_and_what_is_usual() -> None:
    (finding,) = fold(SHORT, run_of(0, 1, 2, 11.5))[1]
    assert (finding.value, finding.limit, finding.first_step) == (9.5, 5.0, 2)
    assert finding.evidence == {"median_gap_s": 1.0, "longest_gap_s": 1.0}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=40))
def test_gaps_under_the_floor_never_fire(gaps: Sequence[float]) -> None:
    assert fired(RULE, run_of(0.0, *accumulate(gaps))) == []
