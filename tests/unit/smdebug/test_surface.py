"""Helpers, actions and trials under smdebug's names."""

from __future__ import annotations

import logging

import pytest

from tests.unit.trial.traces import FOLDER, read
from trainwarden.errors import BadInputError
from trainwarden.smdebug.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh
from trainwarden.smdebug.rules.action import Actions
from trainwarden.smdebug.rules.required_tensors import RequiredTensors
from trainwarden.smdebug.trials import create_trial
from trainwarden.trial.exceptions import StepUnavailable, TensorUnavailable


def test_lists_and_booleans_are_read_from_text() -> None:
    assert parse_list_from_str(" a, b ,,") == ["a", "b"]
    assert parse_list_from_str(None) == []
    assert parse_list_from_str(["x"]) == ["x"]
    assert parse_bool("True")
    assert not parse_bool("no")
    assert parse_bool(None, default=True)
    with pytest.raises(BadInputError, match="true or false"):
        parse_bool("perhaps")


def test_nobody_refreshes_inside_no_refresh() -> None:
    trial = read("pt_mlp_plateau")
    seen = [trial.dynamic_refresh]
    with no_refresh([trial]):
        seen.append(trial.dynamic_refresh)
        with refresh(trial):
            seen.append(trial.dynamic_refresh)
    assert [*seen, trial.dynamic_refresh] == [True, False, True, True]


def test_actions_are_read_and_said_not_done(caplog: pytest.LogCaptureFixture) -> None:
    text = '[{"name": "stopTraining"}, {"name": "email", "endpoint": "me@example.com"}]'
    actions = Actions(text, rule_name="Mine")
    assert actions.words == ("stop", "email:me@example.com")
    with caplog.at_level(logging.WARNING):
        actions.invoke()
    assert "nothing is done here. Say action=stop email:me@example.com" in caplog.text
    for wrong in ("{", '{"name": "sms"}', "[3]"):
        with pytest.raises(BadInputError):
            Actions(wrong)


def test_required_tensors_say_what_is_missing() -> None:
    trial = read("pt_mlp_plateau")
    wanted = RequiredTensors(trial)
    wanted.add("MLP_fc.*weight", steps=[0, 2], should_match_regex=True)
    assert wanted.get_names() == ["MLP_fc0.weight", "MLP_fc1.weight"]
    assert wanted.get_tensor_steps("MLP_fc0.weight") == [0, 2]
    wanted.fetch()
    wanted.add("MLP_fc0.weight", steps=[1])
    with pytest.raises(StepUnavailable):
        wanted.fetch()
    wanted.clear()
    wanted.add("nobody", steps=[0])
    with pytest.raises(TensorUnavailable):
        wanted.fetch()


def test_what_create_trial_cannot_do_is_told() -> None:
    place = str(FOLDER / "pt_mlp_plateau")
    assert create_trial(place, range_steps=(0, None)).steps()[:2] == [0, 2]
    with pytest.raises(BadInputError, match="range_steps"):
        create_trial(place, range_steps=(5, 10))
    with pytest.raises(BadInputError, match="profiler"):
        create_trial(place, profiler=True)
