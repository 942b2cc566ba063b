"""``DebugRuleConfigurations`` and ``DebugHookConfig`` as they stand in SageMaker users' jobs."""

from __future__ import annotations

import json

import pytest

from trainwarden.config import JobConfig, resolve
from trainwarden.model import Json

IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
PROFILER = [
    "BatchSize",
    "CPUBottleneck",
    "Dataloader",
    "GPUMemoryIncrease",
    "IOBottleneck",
    "LoadBalancing",
    "LowGPUUtilization",
    "MaxInitializationTime",
    "OverallFrameworkMetrics",
    "OverallSystemUsage",
    "ProfilerReport",
    "StepOutlier",
]


def rule(title: str, **parameters: str) -> dict[str, Json]:
    return {
        "RuleConfigurationName": title,
        "RuleEvaluatorImage": IMAGE,
        "RuleParameters": parameters,
    }


def configured(*bodies: Json) -> JobConfig:
    return resolve(tags={}, debug_rules=bodies)


def test_the_example_of_the_sagemaker_guide_is_read_as_it_stands() -> None:
    config = configured(
        rule("Amazon-VanishingGradient", rule_to_invoke="VanishingGradient", threshold="20.0")
    )
    (spec,) = config.rules
    assert (spec.key, spec.name) == ("VanishingGradient", "VanishingGradient")
    assert spec.parameters == {"threshold": 20.0}
    assert config.problems == ()


def test_string_parameters_are_cast_to_the_type_of_the_field() -> None:
    config = configured(
        rule(
            "a",
            rule_to_invoke="ExplodingTensor",
            collection_names="weights,losses",
            only_nan="True",
        ),
        rule(
            "b", rule_to_invoke="LossNotDecreasing", num_steps="10", diff_percent="0.1", mode="EVAL"
        ),
        rule("c", rule_to_invoke="StalledTrainingRule", threshold="1800"),
    )
    assert [spec.parameters for spec in config.rules] == [
        {"collection_names": ["weights", "losses"], "only_nan": True},
        {"num_steps": 10, "diff_percent": 0.1, "mode": "EVAL"},
        {"threshold": 1800.0},
    ]
    assert [spec.key for spec in config.rules] == ["a", "b", "c"]
    assert config.problems == ()


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ({"name": "stoptraining", "training_job_prefix": "My-Job"}, ("stop",)),
        ({"name": "StopTraining"}, ("stop",)),
        ([{"name": "email", "endpoint": "ml@example.com"}], ("email:ml@example.com",)),
        (
            [{"name": "sms", "endpoint": "+4930123456"}, {"name": "stoptraining"}],
            ("sms:+4930123456", "stop"),
        ),
        ([], ()),
    ],
)
def test_actions_ride_in_action_json(actions: Json, expected: tuple[str, ...]) -> None:
    config = configured(
        rule("Overfit", rule_to_invoke="Overfit", patience="2", action_json=json.dumps(actions))
    )
    assert config.rules[0].actions == expected
    assert config.rules[0].parameters == {"patience": 2}
    assert config.problems == ()


@pytest.mark.parametrize(
    ("actions", "found", "nearest"),
    [
        ("{", "'{'", ""),
        ('{"name": "stoptrainning"}', "'stoptrainning'", "stoptraining"),
        ('{"name": "email", "endpoint": "nobody"}', "'nobody'", ""),
        ('{"name": "sms", "endpoint": "0301234"}', "'0301234'", ""),
        ("3", "3", ""),
    ],
)
def test_a_wrong_action_is_noted_and_the_rule_runs(actions: str, found: str, nearest: str) -> None:
    config = configured(rule("Overfit", rule_to_invoke="Overfit", action_json=actions))
    assert [spec.key for spec in config.rules] == ["Overfit"]
    assert config.rules[0].actions == ()
    assert [(p.found, p.nearest) for p in config.problems] == [(found, nearest)]
    assert config.problems[0].key.startswith("Overfit action_json")


def test_stop_training_on_fire_is_the_stop_action() -> None:
    stalled = {"rule_to_invoke": "StalledTrainingRule", "training_job_name_prefix": "x"}
    on = configured(rule("s", **stalled, stop_training_on_fire="True"))
    off = configured(rule("s", **stalled, stop_training_on_fire="False"))
    assert (on.rules[0].actions, off.rules[0].actions) == (("stop",), ())
    assert (on.problems, off.problems) == ((), ())


@pytest.mark.parametrize("name", PROFILER)
def test_profiler_rules_are_listed_as_problems_and_skipped(name: str) -> None:
    config = configured(
        rule(name, rule_to_invoke=name), rule("DeadRelu", rule_to_invoke="DeadRelu")
    )
    assert [spec.key for spec in config.rules] == ["DeadRelu"]
    (problem,) = config.problems
    assert (problem.source, problem.key) == ("DebugRuleConfigurations", name)
    assert "machine" in problem.expected


def test_a_custom_rule_that_is_not_deployed_is_skipped_and_named() -> None:
    custom = rule(
        "mine", source_s3_uri="s3://b/rule.py", rule_to_invoke="MyVanishing", threshold="1"
    )
    config = configured(custom)
    assert [p.found for p in config.problems] == ["'MyVanishing'"]


def test_two_configurations_of_one_name_get_keys_of_their_own() -> None:
    same = rule("Overfit", rule_to_invoke="Overfit")
    assert [spec.key for spec in configured(same, same).rules] == ["Overfit", "Overfit-2"]


def test_a_title_with_odd_characters_becomes_a_key() -> None:
    config = configured(rule("my rule/№1 (strict)!", rule_to_invoke="Overfit"))
    assert [spec.key for spec in config.rules] == ["my-rule-1-strict"]


def test_a_tag_may_tune_a_rule_by_its_title() -> None:
    config = resolve(
        tags={"trainwarden:rule:my-overfit": "patience=7"},
        debug_rules=[rule("my-overfit", rule_to_invoke="Overfit", patience="2")],
    )
    assert [(s.key, s.parameters) for s in config.rules] == [("my-overfit", {"patience": 7})]


@pytest.mark.parametrize(
    "body", ["text", 3, None, {}, {"RuleParameters": "x"}, {"RuleParameters": None}]
)
def test_what_is_no_configuration_is_noted(body: Json) -> None:
    config = configured(body, rule("DeadRelu", rule_to_invoke="DeadRelu"))
    assert [spec.key for spec in config.rules] == ["DeadRelu"]
    assert len(config.problems) in {1, 2}


def test_a_hook_configuration_as_sagemaker_users_have_it_has_no_problems() -> None:
    hook = {
        "S3OutputPath": "s3://bucket/path",
        "LocalPath": "/opt/ml/output/tensors",
        "HookParameters": {
            "save_interval": "100",
            "include_workers": "one",
            "train.save_steps": "1",
        },
        "CollectionConfigurations": [
            {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "500"}},
            {"CollectionName": "losses"},
        ],
    }
    assert resolve(tags={}, debug_hook=hook).problems == ()


@pytest.mark.parametrize(
    ("hook", "key", "nearest"),
    [
        ({"S3OutputPaht": "s3://b"}, "S3OutputPaht", "S3OutputPath"),
        (
            {"HookParameters": {"save_intervall": "1"}},
            "HookParameters save_intervall",
            "save_interval",
        ),
        (
            {
                "CollectionConfigurations": [
                    {"CollectionName": "w", "CollectionParameters": {"include_regx": ".*"}}
                ]
            },
            "CollectionConfigurations[0] w include_regx",
            "include_regex",
        ),
        ({"CollectionConfigurations": [{}]}, "CollectionConfigurations[0]", ""),
        ({"HookParameters": "x"}, "HookParameters", ""),
        ({"CollectionConfigurations": {"a": 1}}, "CollectionConfigurations", ""),
        (
            {"CollectionConfigurations": [{"CollectionName": "w", "CollectionParameters": "x"}]},
            "CollectionConfigurations[0] w CollectionParameters",
            "",
        ),
    ],
)
def test_a_key_that_nobody_reads_is_noted(hook: dict[str, Json], key: str, nearest: str) -> None:
    (problem,) = resolve(tags={}, debug_hook=hook).problems
    assert (problem.source, problem.key, problem.nearest) == ("DebugHookConfig", key, nearest)
