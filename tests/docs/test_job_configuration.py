"""Every example of the pages on configuration and events is executed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.events import samples
from trainwarden.config import JobConfig, resolve
from trainwarden.engine import SetSpec
from trainwarden.hook.chosen import plain_rules
from trainwarden.model import Json
from trainwarden.rules import names

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"```([^\n]*)\n(.*?)```", re.DOTALL)


def blocks(page: str, *languages: str) -> Iterator[str]:
    """Yield the code blocks of a page in these languages."""
    for language, text in FENCE.findall((DOCS / page).read_text()):
        if language in languages:
            yield text


def tags(text: str) -> dict[str, str]:
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {key: value for key, _, value in pairs}


def examples(*languages: str) -> list[str]:
    return list(blocks("job-configuration.md", *languages))


def by_key(config: JobConfig) -> dict[str, dict[str, Json]]:
    return {spec.key: dict(spec.parameters) for spec in config.rules}


@pytest.mark.parametrize("text", examples("tags"))
def test_every_example_of_tags_has_no_problem(text: str) -> None:
    assert resolve(tags=tags(text)).problems == ()


def test_the_first_example_of_tags_does_what_it_says() -> None:
    config = resolve(tags=tags(examples("tags")[0]))
    assert list(by_key(config)) == ["VanishingGradient", "DeadRelu", "Overfit"]
    assert by_key(config)["Overfit"] == {"ratio_threshold": 0.2, "patience": 3}
    assert config.rules[2].actions == ("stop",)
    assert (config.stop, config.notify) == (True, ("ml@example.com",))


def test_the_second_example_of_tags_does_what_it_says() -> None:
    config = resolve(tags=tags(examples("tags")[1]))
    assert set(by_key(config)) == set(names()) - {"ClassImbalance"}
    assert by_key(config)["StalledTrainingRule"] == {"threshold": 1800.0}
    assert by_key(config)["ExplodingTensor"] == {"collection_names": ["losses", "gradients"]}
    assert config.muted == ("ClassImbalance",)


def test_the_example_of_two_instances_runs_both() -> None:
    config = resolve(tags=tags(examples("tags")[2]))
    assert by_key(config)["slow-overfit"] == {"patience": 10}
    assert by_key(config)["fast-overfit"] == {"patience": 2}


def test_the_example_of_a_profile_runs_it_and_one_rule_in_the_other() -> None:
    profiles = {spec.key: spec.profile for spec in resolve(tags=tags(examples("tags")[3])).rules}
    assert set(profiles) == {*names("sagemaker"), "GradientsNotZeroed", "Overfit"} - {
        "ClassImbalance"
    }
    assert {profiles[key] for key in ("GradientsNotZeroed", "Overfit")} == {"default"}
    assert profiles["VanishingGradient"] == "sagemaker"


def test_the_example_of_a_set_in_a_tag_is_that_in_json() -> None:
    (tagged,) = resolve(tags=tags(examples("tags")[4])).sets
    (written,) = resolve(tags={}, manifest_rules=json.loads(examples("json")[1])).sets
    assert tagged == written


def test_the_example_of_a_collection_in_python_runs() -> None:
    given: dict[str, Json] = {}
    watched = SimpleNamespace(watch=lambda *_, rules: given.update(rules=rules))
    names_ = {"trainwarden": watched, "model": None, "optimizer": None}
    exec(compile(examples("python")[0], "page", "exec"), names_)  # noqa: S102 - our own page
    config = resolve(tags={}, manifest_rules=plain_rules(given["rules"]))
    assert config.problems == ()
    actions = ("stop", "email:ml@example.com")
    members = ("Overfit", "LossNotDecreasing")
    assert config.sets == (SetSpec("-".join(members), members, 1, None, actions),)
    assert by_key(config)["Overfit"] == {"patience": 2}
    assert set(by_key(config)) == set(names())


@pytest.mark.parametrize("text", examples("json"))
def test_every_example_of_json_has_no_problem(text: str) -> None:
    document = json.loads(text)
    for config in (
        resolve(tags={}, manifest_rules=document),
        resolve(tags={}, defaults={"rules": document}),
        resolve(tags={}, defaults={"rules": text}),
    ):
        assert config.problems == ()
        assert config.rules != ()


def test_the_examples_of_json_do_what_they_say() -> None:
    mixed, with_set, chosen, tuned, instances, short = (
        resolve(tags={}, manifest_rules=json.loads(text)) for text in examples("json")
    )
    assert {spec.key: spec.profile for spec in mixed.rules} == {
        **dict.fromkeys(names(), "default"),
        "VanishingGradient": "sagemaker",
    }
    members = ("Overfit", "LossNotDecreasing", "VanishingGradient")
    assert with_set.sets == (SetSpec("generalization", members, 2, None, ("stop",)),)
    assert set(by_key(with_set)) == set(names())
    assert by_key(chosen) == {"VanishingGradient": {}, "Overfit": {"ratio_threshold": 0.2}}
    assert set(by_key(tuned)) == set(names()) - {"ClassImbalance"}
    assert by_key(tuned)["DeadRelu"] == {"threshold_layer": 60.0}
    assert by_key(instances) == {"fast-overfit": {"patience": 2}, "slow-overfit": {"patience": 10}}
    assert instances.rules[0].actions == ("stop", "email:ml@example.com")
    assert by_key(short) == {"VanishingGradient": {"threshold": 1e-7}}
    assert short.rules[0].every == 100


def test_the_example_in_python_says_the_same_as_its_json() -> None:
    text = examples("python")[1]
    call = ast.parse(text).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    (rules,) = [ast.literal_eval(k.value) for k in call.value.keywords if k.arg == "rules"]
    config = resolve(tags={}, manifest_rules=rules)
    assert config.problems == ()
    assert "ClassImbalance" not in by_key(config)


def test_the_example_written_for_sagemaker_debugger_works_as_it_is() -> None:
    (text,) = examples("json debugger")
    config = resolve(tags={}, debug_rules=json.loads(text))
    assert config.problems == ()
    assert by_key(config) == {
        "VanishingGradient": {"threshold": 1e-7},
        "overfit-and-stop": {"ratio_threshold": 0.2},
    }
    assert config.rules[1].actions == ("stop", "email:ml@example.com")


def test_the_example_of_mistakes_is_answered_as_the_page_shows() -> None:
    (wrong,), (shown,) = examples("tags wrong"), examples("text")
    config = resolve(tags=tags(wrong))
    assert [str(problem) for problem in config.problems] == shown.splitlines()
    assert by_key(config) == {
        "Overfit": {"ratio_threshold": 0.2},
        "DeadRelu": {},
    }
    assert [one.members for one in config.sets] == [("Overfit",)]
    assert not config.stop


def test_the_pages_links_lead_somewhere() -> None:
    for page in ("job-configuration.md", "events.md"):
        text = (DOCS / page).read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (DOCS / target).exists(), f"{page} → {target}"


def matches(pattern: Json, value: Json) -> bool:
    """Match like EventBridge, as far as the page's patterns go."""
    if isinstance(pattern, dict):
        return all(key in value and matches(item, value[key]) for key, item in pattern.items())
    if isinstance(pattern[0], dict):
        (sign, limit) = pattern[0]["numeric"]
        assert sign == ">"
        return bool(value > limit)
    return value in pattern


@pytest.mark.parametrize(
    ("position", "expected", "other"),
    [
        (0, "verdict-overfit", "verdict-muted"),
        (1, "verdict-vanishing-gradient", "verdict-without-permission"),
        (2, "job-opened-with-problems", "job-opened"),
        (3, "verdict-no-data", "verdict-overfit"),
    ],
)
def test_a_pattern_matches_the_events_it_is_shown_for(
    position: int, expected: str, other: str
) -> None:
    pattern = json.loads(list(blocks("events.md", "json pattern"))[position])
    told = dict(samples.samples())
    assert matches(pattern, told[expected])
    assert not matches(pattern, told[other])
