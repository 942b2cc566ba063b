"""All sources together: who wins, what is merged, and that nothing wrong breaks what is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwarden.config import JobConfig, Problem, resolve
from trainwarden.config.model import nearest
from trainwarden.engine import Engine
from trainwarden.model import Json, Mode, Severity
from trainwarden.rules import names

EVERYTHING = list(names())
TAGS = {
    "trainwarden:rules": "VanishingGradient Overfit",
    "trainwarden:rule:Overfit": "patience=3 action=stop modes=TRAIN+EVAL severity=error",
    "trainwarden:stop": "allow",
    "trainwarden:notify": "ml@example.com +4930123456 trainwarden-team",
    "trainwarden:nonce": "n-1",
    "trainwarden:mute": "VanishingGradient",
}


def keys(config: JobConfig) -> list[str]:
    return [spec.key for spec in config.rules]


def debug_rule(name: str, **parameters: str) -> dict[str, Json]:
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/rules:latest",
        "RuleParameters": {"rule_to_invoke": name, **parameters},
    }


def test_without_any_configuration_every_rule_runs_with_its_defaults() -> None:
    config = resolve(tags={})
    assert keys(config) == EVERYTHING
    assert all(spec.parameters == {} and spec.actions == () for spec in config.rules)
    assert (config.stop, config.notify, config.muted, config.problems) == (False, (), (), ())


def test_the_strongest_source_that_chooses_decides_which_rules_run() -> None:
    defaults = {"rules": "DeadRelu"}
    assert keys(resolve(tags={}, defaults=defaults)) == ["DeadRelu"]
    assert keys(resolve(tags={}, defaults=defaults, manifest_rules=["Overfit"])) == ["Overfit"]
    debugger = [debug_rule("ExplodingTensor")]
    sources: dict[str, Json] = {"defaults": defaults, "manifest_rules": ["Overfit"]}
    assert keys(resolve(tags={}, debug_rules=debugger, **sources)) == ["ExplodingTensor"]
    tags = {"trainwarden:rules": "ClassImbalance"}
    assert keys(resolve(tags=tags, debug_rules=debugger, **sources)) == ["ClassImbalance"]


def test_settings_of_one_rule_are_merged_and_the_strongest_wins_one_by_one() -> None:
    config = resolve(
        tags={"trainwarden:rule:DeadRelu": "threshold_inactivity=5"},
        debug_rules=[debug_rule("DeadRelu", threshold_inactivity="4", threshold_layer="40")],
        manifest_rules={"DeadRelu": {"threshold_layer": "30%", "min_seen": 7, "severity": "error"}},
        defaults={"rules": {"DeadRelu": {"min_seen": 8, "min_saves": 9, "start_step": 10}}},
    )
    (spec,) = config.rules
    assert spec.parameters == {
        "threshold_inactivity": 5,
        "threshold_layer": 40,
        "min_seen": 7,
        "min_saves": 9,
    }
    assert (spec.start_step, spec.severity) == (10, Severity.ERROR)
    assert config.problems == ()


def test_a_wrong_value_in_a_stronger_source_leaves_the_weaker_one_in_force() -> None:
    config = resolve(
        tags={"trainwarden:rule:DeadRelu": "min_seen=many"},
        manifest_rules={"DeadRelu": {"min_seen": 4}},
    )
    assert {s.key: s.parameters for s in config.rules}["DeadRelu"] == {"min_seen": 4}
    assert [p.found for p in config.problems] == ["'many'"]


def test_tuning_a_rule_in_a_weaker_source_does_not_add_it_to_a_stronger_choice() -> None:
    config = resolve(
        tags={"trainwarden:rules": "Overfit"}, manifest_rules={"DeadRelu": {"min_seen": 4}}
    )
    assert keys(config) == ["Overfit"]


def test_naming_a_rule_in_a_stronger_source_adds_it_to_a_weaker_choice() -> None:
    config = resolve(tags={"trainwarden:rule:DeadRelu": "min_seen=4"}, manifest_rules=["Overfit"])
    assert keys(config) == ["Overfit", "DeadRelu"]


def test_a_rule_can_be_switched_off_by_a_stronger_source_only() -> None:
    off = {"DeadRelu": False}
    assert "DeadRelu" not in keys(resolve(tags={}, manifest_rules=off))
    assert "DeadRelu" in keys(resolve(tags={"trainwarden:rules": "default"}, manifest_rules=off))
    tags = {"trainwarden:rule:DeadRelu": "off"}
    assert "DeadRelu" not in keys(resolve(tags=tags, manifest_rules=["DeadRelu", "Overfit"]))


def test_a_choice_of_nothing_but_unknown_rules_falls_back_to_the_weaker_source() -> None:
    config = resolve(tags={"trainwarden:rules": "VanishingGardient"})
    assert keys(config) == EVERYTHING
    (problem,) = config.problems
    assert (problem.source, problem.nearest) == ("tag", "VanishingGradient")


def test_an_address_that_nobody_listens_at_is_noted_and_everybody_is_told_instead() -> None:
    tags = {"trainwarden:notify": "ml@exmaple.com"}
    config = resolve(tags=tags, defaults={"subscribers": ["ml@example.com"]})
    assert config.notify == ()
    assert [p.nearest for p in config.problems] == ["ml@example.com"]
    assert resolve(tags=tags).notify == ("ml@exmaple.com",)


def test_a_rules_own_address_that_nobody_listens_at_leaves_it_to_notify_everybody() -> None:
    tags = {
        "trainwarden:rule:Overfit": "action=email:ml@exmaple.com",
        "trainwarden:rule:DeadRelu": "action=stop+email:ml@example.com",
    }
    config = resolve(tags=tags, defaults={"subscribers": ["ml@example.com"]})
    actions = {spec.key: spec.actions for spec in config.rules}
    assert actions["Overfit"] == ("notify",)
    assert actions["DeadRelu"] == ("stop", "email:ml@example.com")
    assert [(p.key, p.nearest) for p in config.problems] == [("Overfit", "ml@example.com")]


def test_a_job_has_at_most_sixty_four_rules_and_is_told_so() -> None:
    many = {f"DeadRelu{number}": {"rule": "DeadRelu"} for number in range(90)}
    config = resolve(tags={}, manifest_rules=many)
    assert keys(config)[: len(EVERYTHING)] == EVERYTHING
    assert len(config.rules) == 64
    assert [p.expected for p in config.problems] == ["at most 64 rules (the first ones run)"]


def test_a_configuration_survives_its_json_form() -> None:
    config = resolve(tags={**TAGS, "trainwarden:oops": "1"}, debug_rules=[debug_rule("DeadRelu")])
    assert config.problems != ()
    assert JobConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert JobConfig.from_json({}) == JobConfig()


def test_every_field_of_the_tags_arrives() -> None:
    config = resolve(tags=TAGS)
    assert keys(config) == ["VanishingGradient", "Overfit"]
    overfit = config.rules[1]
    assert overfit.parameters == {"patience": 3}
    assert (overfit.actions, overfit.severity) == (("stop",), Severity.ERROR)
    assert overfit.modes == (Mode.TRAIN, Mode.EVAL)
    assert (config.stop, config.nonce) == (True, "n-1")
    assert config.notify == ("ml@example.com", "+4930123456", "trainwarden-team")
    assert config.is_muted("VanishingGradient")
    assert not config.is_muted("Overfit")
    assert config.problems == ()


def test_a_problem_reads_as_one_sentence() -> None:
    problem = Problem("tag", "trainwarden:rules", "'Overfitt'", "the name of a rule", "Overfit")
    assert str(problem) == (
        "tag trainwarden:rules: expected the name of a rule, found 'Overfitt'; "
        "did you mean Overfit?"
    )


def test_the_nearest_word_does_not_depend_on_case_or_separators() -> None:
    assert nearest("EXPLODING_TENSER", EVERYTHING) == "ExplodingTensor"
    assert nearest("zzz", EVERYTHING) == ""


TEXT = st.text(max_size=40)
WORDS = ["rule", "key", "parameters", "RuleConfiguration", "RuleName", "Threshold", "patience"]
WORDS += ["RuleParameters", "rule_to_invoke", "action_json", "action", "modes", "Overfit"]
ALWAYS_THE_SAME = settings(derandomize=True, deadline=None, max_examples=150)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(WORDS) | TEXT, inner | st.sampled_from(EVERYTHING), max_size=4
        )
    ),
    max_leaves=12,
)
TAG_KEYS = st.sampled_from([*TAGS, "trainwarden:rule:X", "trainwarden:", "Trainwarden"]) | TEXT


@ALWAYS_THE_SAME
@given(tags=st.dictionaries(TAG_KEYS, TEXT, max_size=6))
def test_no_tag_can_raise_and_what_comes_out_always_builds(tags: Mapping[str, str]) -> None:
    config = resolve(tags=tags)
    Engine(config.rules)
    assert JobConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@ALWAYS_THE_SAME
@given(document=JSON, debugger=st.lists(JSON, max_size=3), hook=st.dictionaries(TEXT, JSON))
def test_no_document_can_raise_and_what_comes_out_always_builds(
    document: Json, debugger: list[Json], hook: dict[str, Json]
) -> None:
    config = resolve(tags={}, debug_rules=debugger, debug_hook=hook, manifest_rules=document)
    Engine(config.rules)
    json.dumps(config.to_json(), allow_nan=False)


@pytest.mark.parametrize("source", ["tags", "manifest"])
def test_what_is_wrong_in_one_place_breaks_nothing_elsewhere(source: str) -> None:
    wrong = {
        "trainwarden:rules": "Overfit NoSuchRule DeadRelu",
        "trainwarden:rule:Overfit": "patience=x nonsense ratio_threshold=0.2 colour=red",
        "trainwarden:stop": "perhaps",
    }
    if source == "tags":
        config = resolve(tags=wrong)
    else:
        document = [
            {"Overfit": {"patience": "x", "ratio_threshold": 0.2, "colour": "red"}},
            "NoSuchRule",
            "DeadRelu",
        ]
        config = resolve(tags={}, manifest_rules=document)
    assert keys(config) == ["Overfit", "DeadRelu"]
    assert config.rules[0].parameters == {"ratio_threshold": 0.2}
    assert len(config.problems) == (5 if source == "tags" else 3)


HOSTILE: dict[str, Callable[[], Json]] = {
    "many entries": lambda: ["NoSuchRule"] * 200_000,
    "many rules": lambda: {f"r{i}": {"rule": "Overfit"} for i in range(200_000)},
    "many settings": lambda: {"Overfit": {f"s{i}": i for i in range(200_000)}},
    "one long name": lambda: ["x" * 5_000_000],
    "a long key": lambda: [{"rule": "Overfit", "key": "k" * 5_000_000}],
    "a long value": lambda: {"Overfit": {"tensor_regex": ["a" * 250] * 20_000}},
    "a long number": lambda: {"Overfit": {"patience": "9" * 5_000_000}},
    "many actions": lambda: {"Overfit": {"action": ["stop"] * 200_000}},
    "a long action": lambda: {"Overfit": {"action": "email:a@" + "a." * 1_000_000}},
    "deep text": lambda: "[" * 500_000,
    "a deep list": lambda: nested(50_000),
    "a lone surrogate": lambda: {"Overfit": {"\ud800": "\ud800"}},
}


def nested(depth: int) -> Json:
    inner: Json = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.timeout(20)
def test_a_hostile_document_costs_little_and_leaves_little_to_keep(kind: str) -> None:
    config = resolve(tags={}, manifest_rules=HOSTILE[kind](), debug_rules=nested(2))
    kept = json.dumps(config.to_json(), allow_nan=False).encode("utf-8", "strict")
    assert len(kept) < 100_000
    assert config.problems != ()
    Engine(config.rules)
