"""Sets of rules in tags, scripts and defaults: all forms, and an answer for each mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainwarden.config import JobConfig, resolve
from trainwarden.engine import Engine, SetSpec
from trainwarden.model import Json, Severity
from trainwarden.rules import names

TWO = ("Overfit", "LossNotDecreasing")


def entry(**more: Json) -> dict[str, Json]:
    return {"set": "generalization", "rules": [*TWO], **more}


def only(config: JobConfig) -> SetSpec:
    assert config.problems == ()
    (one,) = config.sets
    Engine(config.rules, config.sets)
    return one


@pytest.mark.parametrize(
    ("when", "at_least"),
    [("any", 1), ("all", 2), ("All", 2), ({"at_least": 2}, 2), ({"atLeast": "1"}, 1), (None, 1)],
)
def test_a_set_in_json_chooses_its_rules(when: Json, at_least: int) -> None:
    document = entry(**({"when": when} if when else {}))
    for said in (
        {"manifest_rules": document},
        {"manifest_rules": [document]},
        {"manifest_rules": json.dumps([document])},
        {"defaults": {"rules": [document]}},
    ):
        config = resolve(tags={}, **said)
        assert only(config) == SetSpec("generalization", TWO, at_least)
        assert [spec.key for spec in config.rules] == [*TWO]


def test_a_tag_adds_a_set_to_whatever_runs() -> None:
    said = "Overfit LossNotDecreasing at_least = 2 action=stop severity=error"
    config = resolve(tags={"trainwarden:set:generalization": said})
    expected = SetSpec("generalization", TWO, 2, Severity.ERROR, ("stop",))
    assert only(config) == expected
    assert [spec.key for spec in config.rules] == list(names())
    few = {"trainwarden:rules": "DeadRelu", "trainwarden:set:x": "Overfit DeadRelu all"}
    config = resolve(tags=few)
    assert only(config) == SetSpec("x", ("Overfit", "DeadRelu"), 2)
    assert [spec.key for spec in config.rules] == ["DeadRelu", "Overfit"]


def test_members_may_have_settings_and_keys_of_their_own() -> None:
    rules = [
        {"Overfit": {"patience": 5}},
        {"rule": "Overfit", "key": "fast", "patience": 2},
        "LOS001",
    ]
    config = resolve(tags={}, manifest_rules=entry(rules=rules, action=["stop", "sms:+4930123456"]))
    assert only(config).members == ("Overfit", "fast", "LossNotDecreasing")
    assert only(config).actions == ("stop", "sms:+4930123456")
    assert {s.key: dict(s.parameters) for s in config.rules}["fast"] == {"patience": 2}
    tags = {"trainwarden:rule:slow": "rule=Overfit patience=9", "trainwarden:set:x": "slow fast"}
    config = resolve(tags=tags, manifest_rules=entry(rules=rules))
    assert {one.key: one.members for one in config.sets}["x"] == ("slow", "fast")


def test_the_strongest_definition_of_a_set_counts_and_a_tag_can_switch_it_off() -> None:
    tags = {"trainwarden:set:generalization": "Overfit action=notify"}
    config = resolve(tags=tags, manifest_rules=entry(action="stop"))
    assert only(config) == SetSpec("generalization", ("Overfit",), 1, None, ("notify",))
    off = {"trainwarden:set:generalization": "off"}
    config = resolve(tags=off, manifest_rules=entry())
    assert (config.sets, config.problems) == ((), ())
    chosen = resolve(tags={"trainwarden:rules": "DeadRelu"}, manifest_rules=entry())
    assert (chosen.sets, chosen.problems) == ((), ())


def test_a_set_can_be_muted_and_its_addresses_are_checked() -> None:
    tags = {
        "trainwarden:set:x": "Overfit action=stop+email:ml@exmaple.com",
        "trainwarden:mute": "X",
    }
    config = resolve(tags=tags, defaults={"subscribers": ["ml@example.com"]})
    assert config.muted == ("x",)
    assert config.sets[0].actions == ("stop", "notify")
    assert [(p.key, p.nearest) for p in config.problems] == [("x", "ml@example.com")]


@pytest.mark.parametrize(
    ("more", "key", "expected", "nearest"),
    [
        ({"when": "some"}, "when", 'any, all or {"at_least": 2}', ""),
        ({"when": "al"}, "when", 'any, all or {"at_least": 2}', "all"),
        ({"when": {"at_least": 0}}, "when", "a whole number of rules ≥ 1", ""),
        ({"when": {"at_least": True}}, "when", "a whole number of rules ≥ 1", ""),
        (
            {"when": {"at_least": 3}},
            "at_least",
            "at_least from 1 to 2, the number of its rules",
            "",
        ),
        ({"wehn": "all"}, "wehn", "a key of a set of rules", "when"),
        ({"severity": "loud"}, "severity", "info, warning or error", ""),
        (
            {"action": "halt"},
            "action",
            "stop, capture-more, notify, none, email:ADDRESS or sms:+NUMBER",
            "",
        ),
        ({"rules": [*TWO, "Overfitt"]}, "rules[2]", "the name of a rule", "Overfit"),
        ({"rules": [*TWO, 3]}, "rules[2]", "a rule (a set holds no sets)", ""),
        ({"rules": [*TWO, entry()]}, "rules[2]", "a rule (a set holds no sets)", ""),
    ],
)
def test_what_is_wrong_in_a_set_is_named_and_the_rest_of_it_works(
    more: dict[str, Json], key: str, expected: str, nearest: str
) -> None:
    config = resolve(tags={}, manifest_rules=[entry(**more)])
    (problem,) = config.problems
    assert problem.key == f"rules[0] {key}"
    assert (problem.expected, problem.nearest) == (expected, nearest)
    assert config.sets[0].members == TWO


@pytest.mark.parametrize(
    ("tag", "value", "expected"),
    [
        ("x", "", "a set with at least one rule that is known"),
        ("x", "Overfitt", "the name of a rule"),
        ("Overfit", "DeadRelu", "a name that no rule has"),
        ("NoData", "DeadRelu", "a name that no rule has"),
        ("", "DeadRelu", "the name of the set"),
        ("x", "Overfit at_leest=2", "a setting of a set"),
        ("x", "Overfit at_least=two", "a whole number of rules ≥ 1"),
    ],
)
def test_a_wrong_tag_of_a_set_breaks_nothing_else(tag: str, value: str, expected: str) -> None:
    config = resolve(tags={f"trainwarden:set:{tag}": value, "trainwarden:stop": "allow"})
    assert config.problems[0].expected == expected
    assert [spec.key for spec in config.rules] == list(names())
    assert config.stop


def test_a_set_that_lost_its_rules_is_noted() -> None:
    tags = {"trainwarden:rule:Overfit": "off"}
    config = resolve(tags=tags, manifest_rules=entry(when={"at_least": 2}))
    assert config.sets == ()
    assert [p.expected for p in config.problems] == ["at least 2 of its rules"]
    config = resolve(tags=tags, manifest_rules=entry(when="all"))
    assert only(config) == SetSpec("generalization", ("LossNotDecreasing",), 1)


@pytest.mark.parametrize("document", [{"set": 3, "rules": [*TWO]}, {"set": "", "rules": [*TWO]}])
def test_a_set_needs_a_name(document: Json) -> None:
    config = resolve(tags={}, manifest_rules=[document, "DeadRelu"])
    assert [p.expected for p in config.problems] == ["the name of the set"]
    assert [spec.key for spec in config.rules] == ["DeadRelu"]


def test_there_are_at_most_ten_sets() -> None:
    many: list[Any] = [{"set": f"s{number}", "rules": ["Overfit"]} for number in range(12)]
    config = resolve(tags={}, manifest_rules=many)
    assert len(config.sets) == 10
    assert {p.expected for p in config.problems} == {"at most 10 sets (the first ones run)"}


def test_sets_survive_the_configurations_json() -> None:
    config = resolve(tags={}, manifest_rules=entry(action="stop", severity="error"))
    assert JobConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_set_called_like_a_rule_is_told_and_gets_another_name() -> None:
    document = {"set": "Overfit", "rules": ["Overfit"], "action": "stop"}
    config = resolve(tags={}, manifest_rules=[document])
    assert config.sets == (SetSpec("Overfit-set", ("Overfit",), 1, None, ("stop",)),)
    (problem,) = config.problems
    assert str(problem) == "script rules[0] set: expected a name that no rule has, found 'Overfit'"


def test_two_sets_of_one_name_are_told_and_both_run() -> None:
    sets = [{"set": "a", "rules": [rule]} for rule in TWO]
    config = resolve(tags={}, manifest_rules=[*sets, sets[0]])
    assert config.sets == (SetSpec("a", TWO[:1], 1), SetSpec("a-2", TWO[1:], 1))
    (problem,) = config.problems
    assert str(problem) == "script rules[1] set: expected a name that no other set has, found 'a'"


def test_a_rule_that_takes_the_name_of_a_set_before_it_does_not_break_the_job() -> None:
    document = [{"set": "g", "rules": [*TWO]}, {"rule": "Threshold", "above": 1, "key": "g"}]
    config = resolve(tags={}, manifest_rules=document)
    Engine(config.rules, config.sets)
    assert [spec.key for spec in config.rules] == [*TWO, "g"]
    (problem,) = config.problems
    assert problem.expected == "a name that no rule has"


@pytest.mark.parametrize(
    ("more", "nearest"), [({"action": ["stpo"]}, "stop"), ({"severity": "eror"}, "error")]
)
def test_a_wrong_setting_of_a_set_gets_the_nearest_right_one(
    more: dict[str, Json], nearest: str
) -> None:
    (problem,) = resolve(tags={}, manifest_rules=[entry(**more)]).problems
    assert problem.nearest == nearest
