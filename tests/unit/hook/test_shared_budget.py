"""Processes that each save a part of the same steps, without talking about it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from trainwarden.hook.budget import FREE
from trainwarden.hook.schedule import Schedule
from trainwarden.hook.shared_budget import SharedBudget

INTERVAL = 2


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def saved_by(cost: float, *, steps: int = 20_000, schedule: Schedule | None = None) -> list[int]:
    """Run a process whose steps take 1 s and whose saved steps take ``cost`` more."""
    clock = Clock()
    schedule = schedule or Schedule(interval=INTERVAL, dense=0)
    budget = SharedBudget(0.02, schedule.number, schedule.interval, clock)
    saved = []
    for step in range(steps):
        clock.now += 1.0
        if schedule.saves(step) and budget.allows(step):
            budget.begin(step)
            clock.now += cost
            budget.end(step)
            saved.append(step)
    return saved


@pytest.mark.parametrize("costs", [(0.1, 0.3), (0.3, 0.31), (0.001, 2.0)])
def test_most_of_what_the_slower_one_saves_the_faster_one_saves_as_well(
    costs: tuple[float, float],
) -> None:
    fast, slow = map(saved_by, costs)
    late = [step for step in slow if step > slow[-1] // 2]
    shared = set(late) & set(fast)
    assert len(late) > 5
    assert len(shared) >= 0.7 * len(late)


def test_each_one_stays_within_its_share() -> None:
    for cost in (0.1, 0.5, 2.0):
        saved = saved_by(cost)
        counted = len(saved) - FREE
        assert counted * cost <= 0.021 * 20_000
        assert counted * cost >= 0.008 * 20_000


def test_steps_that_cost_little_are_all_saved() -> None:
    assert saved_by(0.001, steps=2000) == [*range(0, 2000, INTERVAL)]


def test_a_run_is_never_left_alone_for_long() -> None:
    saved = saved_by(1e4, steps=10_000)
    assert max(b - a for a, b in itertools.pairwise(saved)) <= 1024


def test_steps_are_counted_alike_where_the_run_is_saved_more_often_at_its_ends() -> None:
    schedule = Schedule(interval=100, dense=0, total=2000)
    assert [schedule.number(step) for step in (0, 10, 190, 200, 1700, 1800, 1810)] == [
        *(0, 1, 19, 2, 17, 180, 181)
    ]
