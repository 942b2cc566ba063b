"""Profiles: whose meaning a rule has, wherever it is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from trainwarden import rules
from trainwarden.config import JobConfig, resolve
from trainwarden.engine import Engine
from trainwarden.errors import ConfigError
from trainwarden.model import Finding, Json, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import build, names, registry
from trainwarden.rules._pages import page
from trainwarden.rules._parameters import Bounds, CheckedRule, param


def meta(number: int, name: str, **more: Any) -> RuleMeta:
    return RuleMeta(
        f"USR90{number}", name, Severity.WARNING, Tier.EVIDENCE, (), ("try",), "capture", **more
    )


class Quiet(CheckedRule[Json]):
    """Finds nothing."""

    def start(self) -> Json:
        return {}

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        del obs
        return state, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Both(Quiet):
    """Ours, with another default than SageMaker's."""

    meta: ClassVar[RuleMeta] = meta(1, "Both", sagemaker={"limit": 0.1, "save_interval": 500})
    limit: float | None = param(None, "A limit.", bounds=Bounds(gt=0))
    patience: int = param(3, "Patience.", bounds=Bounds(ge=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Quiet):
    """Runs only when it is named, SageMaker's too, and there it needs a word."""

    meta: ClassVar[RuleMeta] = meta(
        2, "Named", default=False, sagemaker={"patience": 1}, required=("regex", "names")
    )
    regex: tuple[str, ...] = param((), "Some patterns.", pattern=True)
    patience: int = param(3, "Patience.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours(Quiet):
    """SageMaker has no such rule."""

    meta: ClassVar[RuleMeta] = meta(3, "Ours")
    share: float = param(0.5, "A share.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking(Quiet):
    """Cannot run without its parameter."""

    meta: ClassVar[RuleMeta] = meta(4, "Lacking", default=False, sagemaker={})
    other: str
    tolerance: float = param(0.1, "A tolerance.", bounds=Bounds(ge=0))


@dataclass(frozen=True)
class Entry:
    """What an installed plug-in looks like."""

    cls: Any

    @property
    def name(self) -> str:
        return str(self.cls.__name__)

    value = "somewhere"

    def load(self) -> Any:
        return self.cls


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = [Entry(cls) for cls in (Both, Named, Ours, Lacking)]
    monkeypatch.setattr(rules, "entry_points", lambda **_: entries)
    registry.cache_clear()
    yield
    registry.cache_clear()


def profiles(config: JobConfig) -> dict[str, str]:
    return {spec.key: spec.profile for spec in config.rules}


def debug(name: str, **given: str) -> dict[str, Json]:
    return {"RuleConfigurationName": name, "RuleParameters": {"rule_to_invoke": name, **given}}


def test_default_runs_what_needs_nothing_and_sagemaker_what_sagemaker_would() -> None:
    assert {"Both", "Ours"} <= {*names()}
    assert not {"Named", "Lacking"} & {*names()}
    assert "Both" in names("sagemaker")
    assert not {"Ours", "Named", "Lacking"} & {*names("sagemaker")}
    with pytest.raises(ConfigError, match="did you mean sagemaker"):
        names("sagemakr")


def test_the_documented_defaults_lie_below_what_is_given() -> None:
    assert build("Both") == Both()
    assert build("Both", profile="sagemaker") == Both(limit=0.1)
    assert build("Both", {"limit": 0.4}, profile="sagemaker") == Both(limit=0.4)
    with pytest.raises(ConfigError, match="SageMaker Debugger has"):
        build("Ours", profile="sagemaker")
    with pytest.raises(ConfigError, match="its parameter other"):
        build("Lacking")


@pytest.mark.parametrize(
    "said",
    [
        {"tags": {"trainwarden:rules": "sagemaker"}},
        {"manifest_rules": "sagemaker"},
        {"manifest_rules": ["SageMaker"]},
        {"manifest_rules": {"profile": "sagemaker"}},
        {"defaults": {"rules": "sagemaker"}},
        {"defaults": {"rules": ["sagemaker"]}},
    ],
)
def test_a_profile_can_be_named_wherever_rules_can(said: dict[str, Json]) -> None:
    config = resolve(**{"tags": {}, **said})
    assert set(profiles(config)) == {*names("sagemaker")}
    assert set(profiles(config).values()) == {"sagemaker"}
    assert config.problems == ()


def test_a_profile_and_a_rule_of_the_other_may_run_together() -> None:
    config = resolve(tags={"trainwarden:rules": "sagemaker Ours -Overfit"})
    assert profiles(config)["Both"] == "sagemaker"
    assert profiles(config)["Ours"] == "default"
    assert "Overfit" not in profiles(config)


def test_the_profile_of_one_rule_is_a_setting_like_any_other() -> None:
    config = resolve(
        tags={"trainwarden:rule:Both": "profile=sagemaker"}, manifest_rules={"Both": {"limit": 2}}
    )
    assert profiles(config)["Both"] == "sagemaker"
    assert profiles(config)["Ours"] == "default"
    assert Engine(config.rules).rules["Both"] == Both(limit=2)


def test_what_was_written_for_sagemaker_has_sagemakers_meaning() -> None:
    config = resolve(tags={}, debug_rules=[debug("Both", patience="5"), debug("Ours")])
    assert profiles(config) == {"Both": "sagemaker", "Ours": "default"}
    assert Engine(config.rules).rules["Both"] == Both(limit=0.1, patience=5)
    again = resolve(tags={"trainwarden:rules": "default"}, debug_rules=[debug("Both")])
    assert profiles(again)["Both"] == "default"


@pytest.mark.parametrize(
    ("tags", "found", "nearest"),
    [
        ({"trainwarden:rules": "sagemakr"}, "'sagemakr'", "sagemaker"),
        ({"trainwarden:rule:Both": "profile=sagemakr"}, "'sagemakr'", "sagemaker"),
        ({"trainwarden:rule:Both": "profil=sagemaker"}, "'profil'", "profile"),
        ({"trainwarden:rule:Ours": "profile=sagemaker"}, "'sagemaker'", ""),
    ],
)
def test_a_wrong_profile_is_named_with_the_nearest_and_breaks_nothing(
    tags: dict[str, str], found: str, nearest: str
) -> None:
    config = resolve(tags=tags)
    assert [(p.found, p.nearest) for p in config.problems] == [(found, nearest)]
    assert set(profiles(config)) == {*names()}
    assert set(profiles(config).values()) == {"default"}


def test_a_rule_without_what_it_cannot_run_without_is_left_out_and_noted() -> None:
    config = resolve(tags={"trainwarden:rules": "Lacking Ours"})
    assert list(profiles(config)) == ["Ours"]
    assert [p.expected for p in config.problems] == ["Lacking with its parameter other"]
    config = resolve(tags={"trainwarden:rule:Lacking": "other=run-1 tolerance=0.2"})
    assert Engine(config.rules).rules["Lacking"] == Lacking(other="run-1", tolerance=0.2)
    config = resolve(tags={"trainwarden:rule:Lacking": "other=run-1 tolerance=-1"})
    assert [p.expected for p in config.problems] == ["tolerance to be a value >= 0"]


def test_the_page_of_a_rule_tells_both_profiles_apart() -> None:
    assert "| `limit` | none | 0.1 |" in page("Both")
    assert "Run by `default` and `sagemaker`." in page("Both")
    assert "There it needs `regex` or `names`." in page("Named")
    assert "there is only the profile `default`." in page("Ours")


def test_the_profile_survives_the_configurations_json() -> None:
    config = resolve(tags={"trainwarden:rules": "sagemaker"})
    assert JobConfig.from_json(config.to_json()) == config
    old = {"rules": [{"key": "Both", "name": "Both"}]}
    assert profiles(JobConfig.from_json(old)) == {"Both": "default"}
