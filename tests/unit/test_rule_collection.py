"""Rules and collections written in Python, as they arrive in a job's configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import trainwarden
from trainwarden import actions
from trainwarden.actions import (
    SMS,
    ActionList,
    CaptureMoreAction,
    Email,
    EmailAction,
    NotifyAction,
    StopTraining,
    StopTrainingAction,
)
from trainwarden.config import JobConfig, resolve
from trainwarden.engine import SetSpec
from trainwarden.errors import ConfigError
from trainwarden.hook.options import Options, options
from trainwarden.rules import LossNotDecreasing, Overfit, RuleCollection, registry


def manifest(rules: Any) -> Any:
    def report(problem: str) -> None:
        raise AssertionError(problem)

    checked: Options = options({"rules": rules}, report=report)
    return checked.rules


def configured(rules: Any) -> JobConfig:
    config = resolve(tags={}, manifest_rules=manifest(rules))
    assert config.problems == ()
    return config


def test_rules_can_be_imported_by_name() -> None:
    assert Overfit is registry()["Overfit"]
    assert trainwarden.RuleCollection is RuleCollection
    assert trainwarden.StopTrainingAction is StopTrainingAction
    assert trainwarden.CaptureMoreAction is CaptureMoreAction
    assert trainwarden.actions is actions
    with pytest.raises(AttributeError, match="Overfitting"):
        getattr(trainwarden.rules, "Overfitting")  # noqa: B009 - a misspelt name
    with pytest.raises(AttributeError, match="nothing"):
        getattr(trainwarden, "nothing")  # noqa: B009 - a misspelt name


def test_the_hook_loads_without_the_rules() -> None:
    code = (
        "import sys, trainwarden; trainwarden.watch; trainwarden.StopTrainingAction; "
        "print([m for m in sys.modules if m.startswith(('trainwarden.rules', 'trainwarden.eng'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_collection_is_a_set_whose_rules_are_chosen() -> None:
    collection = RuleCollection(
        [Overfit(ratio_threshold=0.2), LossNotDecreasing()], action=StopTrainingAction()
    )
    config = configured(collection)
    assert {spec.key: dict(spec.parameters) for spec in config.rules} == {
        "Overfit": {"ratio_threshold": 0.2},
        "LossNotDecreasing": {},
    }
    assert config.sets == (
        SetSpec("Overfit-LossNotDecreasing", ("Overfit", "LossNotDecreasing"), 1, None, ("stop",)),
    )


def test_beside_the_default_rules_and_with_every_word() -> None:
    collection = RuleCollection(
        [Overfit, "LossNotDecreasing", {"rule": "DeadRelu", "min_seen": 5}],
        action=ActionList(StopTraining(), Email("ml@example.com"), SMS("+4930123456")),
        when={"at_least": 2},
        name="generalization",
        severity="error",
    )
    config = configured(["default", collection])
    assert len(config.rules) > 3
    (one,) = config.sets
    assert (one.key, one.at_least, str(one.severity)) == ("generalization", 2, "error")
    assert one.actions == ("stop", "email:ml@example.com", "sms:+4930123456")
    assert one.members == ("Overfit", "LossNotDecreasing", "DeadRelu")


def test_two_rules_of_one_class_get_keys_of_their_own() -> None:
    config = configured(
        [Overfit(patience=2), RuleCollection([Overfit(patience=9), Overfit(patience=2)])]
    )
    assert {spec.key: dict(spec.parameters) for spec in config.rules} == {
        "Overfit": {"patience": 2},
        "Overfit-2": {"patience": 9},
    }
    assert config.sets[0].members == ("Overfit-2", "Overfit")


def test_rules_and_classes_may_stand_alone() -> None:
    assert [spec.key for spec in configured([Overfit, LossNotDecreasing()]).rules] == [
        "Overfit",
        "LossNotDecreasing",
    ]
    assert configured(Overfit).rules == configured(Overfit()).rules == configured("Overfit").rules


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (None, ()),
        ("stop", ("stop",)),
        (StopTrainingAction, ("stop",)),
        (StopTrainingAction("resnet"), ("stop",)),
        ([NotifyAction(), EmailAction("a@b.cd")], ("notify", "email:a@b.cd")),
        ([CaptureMoreAction, StopTrainingAction()], ("capture-more", "stop")),
    ],
)
def test_actions_are_words_of_the_configuration(action: Any, words: tuple[str, ...]) -> None:
    assert RuleCollection([Overfit], action=action).actions == words


def test_what_is_no_set_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="at least one rule"):
        RuleCollection([])
    with pytest.raises(ConfigError, match="an action such as"):
        RuleCollection([Overfit], action=3)  # type: ignore[arg-type]


def test_what_is_no_rule_is_reported_and_has_no_effect() -> None:
    problems: list[str] = []
    checked = options({"rules": [object()]}, report=problems.append)
    assert checked.rules == {}
    assert "found a object" in problems[0]


@pytest.mark.parametrize("rules", [[Overfit(patience=5)], Overfit(patience=5)])
def test_a_collection_of_one_rule_is_a_set_with_its_action(rules: Any) -> None:
    config = configured([RuleCollection(rules, action=StopTrainingAction())])
    assert config.sets == (SetSpec("Overfit-set", ("Overfit",), 1, None, ("stop",)),)
    assert [spec.parameters for spec in config.rules] == [{"patience": 5}]


def test_one_name_is_a_collection_of_one_rule() -> None:
    assert configured([RuleCollection("Overfit")]).sets[0].members == ("Overfit",)


def test_a_collection_holds_no_collection() -> None:
    with pytest.raises(ConfigError, match="a set holds no sets"):
        RuleCollection([RuleCollection([Overfit()])])  # type: ignore[list-item]
