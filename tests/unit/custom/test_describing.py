"""A stand-in is to configuration what the rule is: names, casts, ranges, nearest words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.custom.rules import RULES
from trainwarden import config
from trainwarden.custom.describing import describe, stand_in
from trainwarden.engine import Engine
from trainwarden.errors import ConfigError
from trainwarden.rules import build, names, parameters

pytestmark = pytest.mark.usefixtures("stand_ins")


@pytest.mark.parametrize("name", RULES)
def test_it_has_the_rules_meta_and_parameters(name: str) -> None:
    described = json.loads(json.dumps(describe(RULES[name])))
    made = stand_in(described)
    assert made.meta == RULES[name].meta
    assert parameters(made) == parameters(RULES[name])
    assert describe(RULES[name]) == described


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"limit": "3"}, {"limit": 3.0}, id="text-is-cast"),
        pytest.param({"patience": "none"}, {"patience": None}, id="optional"),
        pytest.param({"names": "a,b"}, {"names": ("a", "b")}, id="list"),
    ],
)
def test_parameters_are_cast(given: dict[str, Any], expected: dict[str, Any]) -> None:
    made = build("HighLoss", given)
    assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(
    "given", [{"limit": -1}, {"patience": 0}, {"names": "("}, {"limits": 1}, {"limit": "x"}]
)
def test_wrong_parameters_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        build("HighLoss", given)


def test_tags_name_custom_rules_and_misspelt_ones_get_the_nearest() -> None:
    found = config.resolve(
        tags={
            "trainwarden:rules": "HighLos Overfit",
            "trainwarden:rule:HighLoss": "limit=3 patiense=2",
            "trainwarden:rule:strict": "rule=HighLoss limit=1 action=stop",
        }
    )
    assert [spec.key for spec in found.rules] == ["Overfit", "HighLoss", "strict"]
    assert [problem.nearest for problem in found.problems] == ["patience", "HighLoss"]
    Engine(found.rules)


def test_rule_configurations_of_sagemaker_name_custom_rules_too() -> None:
    said = {"rule_to_invoke": "HighLoss", "source_s3_uri": "s3://b/high_loss.py", "limit": "3"}
    found = config.resolve(
        tags={}, debug_rules=[{"RuleConfigurationName": "mine", "RuleParameters": said}]
    )
    (spec,) = found.rules
    assert (spec.key, spec.name, found.problems) == ("mine", "HighLoss", ())
    assert build(spec.name, spec.parameters) == build("HighLoss", {"limit": 3.0})


def test_they_run_by_themselves_if_they_say_so() -> None:
    assert {*RULES} <= {*names()}
