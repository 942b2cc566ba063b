"""Rules as JSON: what a script passes to ``watch`` and what a deployment has as defaults."""

from __future__ import annotations

import pytest

from trainwarden.config import JobConfig, resolve
from trainwarden.config.documents import main_threshold
from trainwarden.model import Json
from trainwarden.rules import names


def configured(document: Json) -> JobConfig:
    return resolve(tags={}, manifest_rules=document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("Overfit DeadRelu", ["Overfit", "DeadRelu"]),
        ("Overfit, DeadRelu", ["Overfit", "DeadRelu"]),
        (["Overfit", {"DeadRelu": {}}], ["Overfit", "DeadRelu"]),
        (["Overfit", {"DeadRelu": None}], ["Overfit", "DeadRelu"]),
        ('["Overfit"]', ["Overfit"]),
        ([{"rule": "Overfit", "key": "tight"}, "Overfit"], ["tight", "Overfit"]),
        ([{"name": "Overfit"}], ["Overfit"]),
        ({"RuleConfiguration": {"RuleName": "Overfit"}}, ["Overfit"]),
        (
            {
                "RuleConfigurations": [
                    {"RuleConfiguration": {"RuleName": "Overfit"}},
                    {"RuleConfiguration": {"RuleName": "DeadRelu"}},
                ]
            },
            ["Overfit", "DeadRelu"],
        ),
        (
            [{"RuleConfigurationName": "x", "RuleParameters": {"rule_to_invoke": "Overfit"}}],
            ["x"],
        ),
        (["none"], []),
        (None, list(names())),
        ("", list(names())),
        ({}, list(names())),
        ("default", list(names())),
        (["default"], list(names())),
        ({"Overfit": {"patience": 2}}, list(names())),
        ({"Overfit": False}, [name for name in names() if name != "Overfit"]),
        ({"Overfit": "off"}, [name for name in names() if name != "Overfit"]),
        (["default", "-Overfit"], [name for name in names() if name != "Overfit"]),
        ("default -Overfit", [name for name in names() if name != "Overfit"]),
        (["-LOS002"], [name for name in names() if name != "Overfit"]),
        (["Overfit", "DeadRelu", "-Overfit"], ["DeadRelu"]),
    ],
)
def test_a_list_chooses_and_a_mapping_tunes(document: Json, expected: list[str]) -> None:
    config = configured(document)
    assert [spec.key for spec in config.rules] == expected
    assert config.problems == ()


@pytest.mark.parametrize(
    "entry",
    [
        {"Overfit": {"ratio_threshold": 0.2, "action": "stop", "start_step": 5}},
        {"Overfit": {"ratio_threshold": "20%", "actions": ["stop"], "StartStep": "5"}},
        {"Overfit": {"parameters": {"ratio_threshold": "0.2"}, "action": "stop", "start_step": 5}},
        {"rule": "Overfit", "ratio_threshold": 0.2, "action": "stop", "start_step": 5},
        {
            "name": "LOS002",
            "parameters": {"ratio_threshold": 0.2},
            "Action": "stop",
            "start_step": 5,
        },
        {
            "RuleConfiguration": {
                "RuleName": "Overfit",
                "Threshold": "20%",
                "Action": "stop",
                "StartStep": 5,
            }
        },
    ],
)
def test_one_entry_can_be_written_in_several_ways(entry: Json) -> None:
    config = configured([entry])
    (spec,) = config.rules
    assert (spec.key, spec.parameters) == ("Overfit", {"ratio_threshold": 0.2})
    assert (spec.actions, spec.start_step) == (("stop",), 5)
    assert config.problems == ()


def test_the_short_form_sets_threshold_and_frequency() -> None:
    config = configured(
        {
            "RuleConfiguration": {
                "RuleName": "VanishingGradient",
                "Threshold": "1e-7",
                "EvaluationFrequency": 100,
            }
        }
    )
    (spec,) = config.rules
    assert (spec.name, spec.parameters, spec.every) == (
        "VanishingGradient",
        {"threshold": 1e-7},
        100,
    )
    assert config.problems == ()


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("VanishingGradient", "threshold"),
        ("DeadRelu", "threshold_layer"),
        ("Overfit", "ratio_threshold"),
        ("ClassImbalance", "threshold_imbalance"),
        ("LossNotDecreasing", "diff_percent"),
        ("StalledTrainingRule", "threshold"),
    ],
)
def test_threshold_means_the_main_limit_of_each_rule(name: str, parameter: str) -> None:
    found = main_threshold(name)
    assert found is not None
    assert found.name == parameter


@pytest.mark.parametrize(
    ("document", "key", "found", "nearest"),
    [
        (3, "rules", "3", ""),
        ("{", "rules", "'{'", ""),
        ([3], "rules[0]", "3", ""),
        (["Overfitt"], "rules[0]", "'Overfitt'", "Overfit"),
        ([{}], "rules[0]", "[]", ""),
        ([{"a": 1, "b": 2}], "rules[0]", "['a', 'b']", ""),
        ({"Overfit": 3}, "rules Overfit", "3", ""),
        ({"Overfit": {"patiense": 3}}, "rules Overfit patiense", "'patiense'", "patience"),
        ([{"rule": "Overfitt"}], "rules[0]", "'Overfitt'", "Overfit"),
        ({"RuleConfiguration": 3}, "rules[0] RuleConfiguration", "3", ""),
        ({"RuleConfiguration": {"RuleName": "x"}}, "rules[0] RuleConfiguration", "'x'", ""),
        (
            {"RuleConfiguration": {"RuleName": "ExplodingTensor", "Threshold": 3}},
            "rules[0] RuleConfiguration Threshold",
            "3",
            "",
        ),
        (
            {"RuleConfiguration": {"RuleName": "Overfit", "EvaluationFrequenzy": 3}},
            "rules[0] RuleConfiguration EvaluationFrequenzy",
            "'EvaluationFrequenzy'",
            "EvaluationFrequency",
        ),
    ],
)
def test_whatever_is_wrong_says_where_it_stands(
    document: Json, key: str, found: str, nearest: str
) -> None:
    (problem,) = configured(document).problems
    assert (problem.source, problem.key, problem.found) == ("script", key, found)
    assert problem.nearest == nearest


def test_the_deployments_defaults_are_read_like_a_scripts_rules() -> None:
    config = resolve(tags={}, defaults={"rules": "Overfit Nonsense", "stop_on": "error"})
    assert [spec.key for spec in config.rules] == ["Overfit"]
    assert [(p.source, p.found) for p in config.problems] == [("deployment", "'Nonsense'")]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {},
            "script head: expected a limit in above, below or both, found 'neither'",
        ),
        ({"above": 1, "statistic": "abs_meen"}, "did you mean 'abs_mean'?"),
    ],
)
def test_a_threshold_that_could_never_fire_is_told_and_does_not_run(
    settings: dict[str, Json], said: str
) -> None:
    config = configured(["Overfit", {"rule": "Threshold", "key": "head", **settings}])
    assert [spec.key for spec in config.rules] == ["Overfit"]
    assert [said in str(problem) for problem in config.problems] == [True]


def test_the_parameters_of_a_threshold_are_checked_together() -> None:
    config = configured([{"rule": "Threshold", "statistic": "l2", "collection": "weights",
                          "above": "2", "below": 1}])  # fmt: skip
    assert config.problems == ()
    (spec,) = config.rules
    assert spec.parameters == {
        "statistic": "l2", "collection": "weights", "above": 2.0, "below": 1.0
    }  # fmt: skip


def test_entries_of_one_rule_that_differ_get_keys_of_their_own() -> None:
    one, other = {"rule": "Threshold", "above": 1}, {"rule": "Threshold", "above": 2}
    config = configured([one, other, one])
    limits = {spec.key: spec.parameters["above"] for spec in config.rules}
    assert limits == {"Threshold": 1.0, "Threshold-2": 2.0}
    assert config.problems == ()


@pytest.mark.parametrize(
    ("document", "expected", "found"),
    [
        (
            [{"rule": "Threshold", "above": n, "key": "a"} for n in (1, 2)],
            ["a", "a-2"],
            "rules[1] key: expected a key that no other entry has, found 'a'",
        ),
        (
            [{"rule": "Threshold", "above": 1, "key": "a"}, {"rule": "Overfit", "key": "a"}],
            ["a", "a-2"],
            "rules[1] key: expected a key that no other entry has, found 'a'",
        ),
        (
            [{"rule": "Threshold", "above": 1, "key": "Overfit"}],
            ["Overfit-Threshold"],
            "rules[0] key: expected a key that no other rule has, found 'Overfit'",
        ),
        (
            [{"rule": "Overfit", "key": "NoData"}],
            ["NoData-Overfit"],
            "rules[0] key: expected a key that no other rule has, found 'NoData'",
        ),
        (
            ["DeadRelu", {"rule": "Overfit", "key": "DeadRelu"}],
            ["DeadRelu", "DeadRelu-Overfit"],
            "rules[1] key: expected a key that no other rule has, found 'DeadRelu'",
        ),
        (
            [{"rule": "Overfit", "start_step": 100, "end_step": 50}],
            ["Overfit"],
            "Overfit end_step: expected a step from 100 on, its start_step, found 50",
        ),
        (
            [{"rule": "Overfit", "action": ""}],
            ["Overfit"],
            "rules[0] action: expected an action, or none, found ''",
        ),
        (
            {"-Overfit": {}},
            list(names()),
            "rules -Overfit: expected the name of a rule, found '-Overfit'; did you mean Overfit?",
        ),
    ],
)
def test_what_contradicts_itself_is_told_and_the_rest_runs(
    document: Json, expected: list[str], found: str
) -> None:
    config = configured(document)
    assert [spec.key for spec in config.rules] == expected
    assert [str(problem) for problem in config.problems] == [f"script {found}"]
