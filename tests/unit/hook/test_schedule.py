"""Which steps are saved."""

from __future__ import annotations

import pytest

from trainwarden.errors import ConfigError
from trainwarden.hook.schedule import Schedule


def saved(schedule: Schedule, steps: int = 45) -> list[int]:
    return [step for step in range(steps) if schedule.saves(step)]


def test_it_saves_the_first_steps_without_gaps_and_then_one_in_interval() -> None:
    assert saved(Schedule()) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40]


def test_after_a_resume_it_is_dense_again_and_counts_from_the_start_step() -> None:
    assert saved(Schedule(interval=10, dense=2, start=7)) == [7, 8, 17, 27, 37]


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
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(
    arguments: dict[str, int], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        Schedule(**arguments)
