"""``SaveConfig``: which steps are saved, in the words of SageMaker Debugger."""

from __future__ import annotations

import enum
import json
import logging
from pathlib import Path

import pytest

from trainwarden.errors import ConfigError
from trainwarden.hook import SaveConfig, SaveConfigMode, starting
from trainwarden.hook.options import Options, options
from trainwarden.hook.save_config import of_job
from trainwarden.hook.schedule import Schedule
from trainwarden.model import Json, Mode


def checked(**given: Json) -> Options:
    """What ``watch`` makes of its arguments; none of them may be wrong."""
    return options(given, report=pytest.fail)


def saved(schedule: Schedule, steps: int = 30) -> list[int]:
    return [step for step in range(steps) if schedule.saves(step)]


def test_it_saves_what_the_interval_divides_between_start_and_end_and_the_named_steps() -> None:
    # The meaning of smdebug's own SaveConfig, whose first steps are not denser.
    found = checked(save_config=SaveConfig(5, start_step=6, end_step=20, save_steps=[2, 27]))
    assert saved(found.schedule) == [2, 10, 15, 27]


def test_its_defaults_are_those_of_the_predecessor() -> None:
    found = checked(save_config=SaveConfig())
    assert saved(found.schedule, 1001) == [0, 500, 1000]


def test_dense_steps_may_be_asked_for_beside_it() -> None:
    found = checked(save_config=SaveConfig(10), dense_steps=3)
    assert saved(found.schedule) == [0, 1, 2, 10, 20]


class ModeKeys(enum.Enum):
    """As smdebug has them."""

    TRAIN = 1
    EVAL = 2


def test_modes_have_their_own_and_those_that_lack_one_keep_the_defaults() -> None:
    keys: dict[Mode | str, SaveConfigMode] = {
        ModeKeys.EVAL: SaveConfigMode(save_interval=3),  # type: ignore[dict-item]
    }
    found = checked(save_config=SaveConfig(keys))
    assert found.schedule == Schedule()
    assert saved(found.passes, 8) == [0, 3, 6]
    both = {"train": SaveConfigMode(7), Mode.EVAL: SaveConfigMode(2, end_step=4)}
    found = checked(save_config=SaveConfig(both))
    assert (saved(found.schedule), saved(found.passes)) == ([0, 7, 14, 21, 28], [0, 2])


def test_without_a_word_on_evaluation_every_pass_is_saved() -> None:
    assert saved(checked(save_config=SaveConfig(100)).passes, 4) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SaveConfig(0),
        lambda: SaveConfig(save_steps=[-1]),
        lambda: SaveConfigMode(save_interval=2.5),  # type: ignore[arg-type]
        lambda: SaveConfig({"TRAINING": SaveConfigMode()}),
        lambda: SaveConfig({"TRAIN": 5}),  # type: ignore[dict-item]
    ],
)
def test_what_is_wrong_is_refused_where_it_is_written(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]


def test_something_else_in_its_place_is_said_and_the_defaults_hold() -> None:
    said: list[str] = []
    found = options({"save_config": {"save_interval": 5}}, report=said.append)
    assert found.schedule == Schedule()
    assert "trainwarden.SaveConfig" in said[0]


@pytest.mark.parametrize(
    ("parameters", "steps"),
    [
        ({"save_interval": "10"}, [0, 10, 20]),
        ({"save_interval": "10", "train.save_interval": "15"}, [0, 15]),
        ({"save_interval": "10", "eval.save_interval": "1"}, [0, 10, 20]),
        ({"save_steps": "3, 5", "end_step": "0"}, [3, 5]),
        ({"save_interval": "10", "start_step": "11", "end_step": "None"}, [20]),
    ],
)
def test_hook_parameters_of_a_job_are_read(parameters: dict[str, Json], steps: list[int]) -> None:
    found = of_job(parameters)
    assert found is not None
    assert saved(found.modes[Mode.TRAIN].schedule()) == steps


def test_hook_parameters_without_steps_say_nothing() -> None:
    assert of_job({"include_workers": "one", "eval.save_interval": "3"}) is None


@pytest.mark.parametrize("value", ["often", "1,2", "-5", "", "1.5"])
def test_hook_parameters_that_are_no_numbers_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="save_interval"):
        of_job({"save_interval": value})


def job(folder: Path, parameters: dict[str, str]) -> None:
    """A job's container with a ``DebugHookConfig``."""
    place = folder / "input" / "config"
    place.mkdir(parents=True)
    (place / "debughookconfig.json").write_text(json.dumps({"HookParameters": parameters}))


def settled(**asked: Json) -> Options:
    return starting.settings(asked, "job", "runs", strict=False)[0]


def test_what_the_job_says_counts_unless_the_script_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path, {"save_interval": "25"})
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    assert settled().schedule == Schedule(interval=25)
    assert settled(start_step=40, save_interval=None).schedule == Schedule(interval=25, start=40)
    assert settled(save_interval=4).schedule == Schedule(interval=4)
    assert settled(save_config=SaveConfig(6)).schedule == Schedule(interval=6, dense=0)


def test_nonsense_in_the_jobs_configuration_is_said_and_the_defaults_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job(tmp_path, {"save_interval": "seldom"})
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    with caplog.at_level(logging.WARNING, "trainwarden"):
        assert settled().schedule == Schedule()
    assert "DebugHookConfig" in caplog.text
    assert "seldom" in caplog.text


def test_the_manifest_tells_what_was_asked_for() -> None:
    told = checked(save_config=SaveConfig(5, save_steps=[9, 2]), max_steps=100).to_json()
    assert (told["save_interval"], told["save_steps"], told["max_steps"]) == (5, [2, 9], 100)


@pytest.mark.parametrize("value", [0, -0.1, True, "0.02", float("nan")])
def test_a_budget_that_is_none_is_said(value: Json) -> None:
    said: list[str] = []
    assert options({"max_overhead": value}, report=said.append).max_overhead == 0.02
    assert "max_overhead" in said[0]


def test_no_limit_is_infinity() -> None:
    assert checked(max_overhead=float("inf")).max_overhead is None
    assert checked(max_overhead=1).max_overhead == 1.0
