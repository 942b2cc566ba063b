"""Which steps are saved."""

from __future__ import annotations

import pytest

from trainwarden.errors import ConfigError
from trainwarden.hook.schedule import Schedule
from trainwarden.model import Json


def saved(schedule: Schedule, steps: int = 45) -> list[int]:
    return [step for step in range(steps) if schedule.saves(step)]


def test_it_saves_the_first_steps_without_gaps_and_then_one_in_interval() -> None:
    assert saved(Schedule()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40]


def test_after_a_resume_it_is_dense_again_and_saves_the_steps_the_first_run_would_have() -> None:
    assert saved(Schedule(interval=10, dense=2, start=7)) == [7, 8, 10, 20, 30, 40]
    whole, resumed = Schedule(interval=10, dense=0), Schedule(interval=10, dense=0, start=17)
    assert saved(resumed) == [step for step in saved(whole) if step >= 17]


def test_it_begins_at_the_first_step_that_is_to_be_saved() -> None:
    assert saved(Schedule(interval=10, dense=2, first=12)) == [12, 13, 20, 30, 40]


def test_key_steps_are_saved_wherever_they_lie() -> None:
    schedule = Schedule(interval=20, dense=0, first=10, end=30, steps=frozenset({3, 25, 44}))
    assert saved(schedule) == [3, 20, 25, 44]
    assert [step for step in range(45) if schedule.demands(step)] == [3, 25, 44]


def test_dense_steps_are_demanded_and_others_are_not() -> None:
    schedule = Schedule(interval=5, dense=3, start=2)
    assert [step for step in range(20) if schedule.demands(step)] == [2, 3, 4]


def test_the_first_and_the_last_tenth_of_a_known_length_are_saved_ten_times_as_often() -> None:
    schedule = Schedule(interval=20, dense=0, total=200)
    found = [step for step in range(200) if schedule.saves(step)]
    assert found == [*range(0, 20, 2), *range(20, 180, 20), *range(180, 200, 2)]


def test_a_length_of_a_few_steps_has_no_tenth() -> None:
    schedule = Schedule(interval=4, dense=0, total=9)
    assert saved(schedule, 9) == [0, 4, 8]


def test_it_stops_before_the_end_step() -> None:
    assert saved(Schedule(interval=4, dense=0, end=8)) == [0, 4]


def test_an_interval_of_one_saves_every_step() -> None:
    assert saved(Schedule(interval=1, dense=0), 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"interval": 0}, "save_interval"),
        ({"interval": 2.5}, "save_interval"),
        ({"interval": True}, "save_interval"),
        ({"dense": -1}, "dense_steps"),
        ({"start": -1}, "start_step"),
        ({"end": "10"}, "end_step"),
        ({"first": -1}, "the first step that is saved"),
        ({"steps": frozenset({2, -1})}, "save_steps"),
        ({"steps": frozenset({2.0})}, "save_steps"),
        ({"total": 0}, "max_steps"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(
    arguments: dict[str, Json], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        Schedule(**arguments)
