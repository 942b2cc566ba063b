from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from infra.config import Config, ContextError, from_context


def message(context: dict[str, Any]) -> str:
    with pytest.raises(ContextError) as caught:
        from_context(context)
    return str(caught.value)


def test_without_any_configuration_the_defaults_hold() -> None:
    assert from_context({"@aws-cdk/core:someFlag": True}) == Config()
    assert Config().retain
    assert Config().stop_on == "error"
    assert not Config().dry_run


def test_strings_of_the_command_line_are_taken_for_what_they_mean() -> None:
    found = from_context(
        {
            "trainwarden.emails": "ada@example.org, grace@example.org",
            "trainwarden.retain": "false",
            "trainwarden.steps_days": "7",
            "trainwarden.log_days": "14",
        }
    )
    assert found.emails == ("ada@example.org", "grace@example.org")
    assert not found.retain
    assert (found.steps_days, found.log_days) == (7, 14)


def test_a_key_of_the_command_line_wins_over_cdk_json() -> None:
    context = {"trainwarden": {"stop_on": "never", "dry_run": True}, "trainwarden.stop_on": "error"}
    assert from_context(context) == Config(stop_on="error", dry_run=True)


def test_the_whole_object_may_come_as_json_text() -> None:
    assert from_context({"trainwarden": '{"sms": ["+4915112345678"]}'}).sms == ("+4915112345678",)


@pytest.mark.parametrize("name", ["rules.yaml", "rules.json"])
def test_rules_may_lie_in_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('["default", {"Overfit": {"patience": 3}}]')
    found = from_context({"trainwarden.rules": str(path)})
    assert found.rules == '["default", {"Overfit": {"patience": 3}}]'
    path.write_text("[default, {")
    for wrong in (path, tmp_path / "nowhere.json"):
        with pytest.raises(ContextError, match="a file of rules as JSON or YAML"):
            from_context({"trainwarden.rules": str(wrong)})


def test_settings_of_rules_may_stand_in_cdk_json_as_an_object() -> None:
    found = from_context({"trainwarden": {"rules": {"Overfit": {"patience": 3}}}})
    assert found.rules == '{"Overfit": {"patience": 3}}'


@pytest.mark.parametrize("value", ["emails=a@example.org", "[1]", '"x"', "{", 3, ["emails"]])
def test_anything_but_an_object_is_refused_with_an_example(value: Any) -> None:
    assert "-c trainwarden.emails=a@example.org" in message({"trainwarden": value})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("emial", "emails"),
        ("email", "emails"),
        ("dry-run", "dry_run"),
        ("DryRun", "dry_run"),
        ("retian", "retain"),
        ("stopon", "stop_on"),
        ("architecure", "architecture"),
        ("log_retention_days", "log_days"),
    ],
)
def test_a_misspelt_key_names_the_nearest_right_one(key: str, meant: str) -> None:
    said = message({f"trainwarden.{key}": "x"})
    assert f"trainwarden.{key}: there is no such key; did you mean trainwarden.{meant}?" in said


def test_a_key_like_none_lists_them_all() -> None:
    said = message({"trainwarden": {"qqqqqq": 1}})
    assert all(key in said for key in Config.model_fields)


def test_every_problem_is_told_at_once() -> None:
    said = message(
        {
            "trainwarden": {"emials": [], "sms": ["0151"], "python": "3.9"},
            "trainwarden.steps_days": "0",
        }
    )
    assert len(said.splitlines()) == 5
    for key in ("emials", "sms", "python", "steps_days"):
        assert f"trainwarden.{key}" in said


@pytest.mark.parametrize(
    "address",
    [
        "ada",
        "ada@",
        "@example.org",
        "ada@example",
        "ada@exa mple.org",
        "ada@example..org",
        "ada@example.org\n",
        "Ada <ada@example.org>",
        "ä@example.org",
    ],
)
def test_what_is_no_e_mail_address_is_refused(address: str) -> None:
    said = message({"trainwarden": {"emails": ["grace@example.org", address]}})
    assert "trainwarden.emails (item 2)" in said
    assert "expected an e-mail address" in said


@pytest.mark.parametrize("address", ["ada@example.org", "ada+ml.team@mail.example.co.uk"])
def test_e_mail_addresses_are_accepted(address: str) -> None:
    assert Config(emails=(address,)).emails == (address,)


@pytest.mark.parametrize(
    "number", ["0151123456", "+0151123456", "+49 151 12345678", "+49", "49151"]
)
def test_phone_numbers_need_country_code_and_digits_alone(number: str) -> None:
    assert "expected a phone number with country code" in message({"trainwarden.sms": number})


def test_an_address_given_twice_is_refused() -> None:
    said = message({"trainwarden.emails": "a@example.org,a@example.org"})
    assert "a@example.org is listed twice" in said


def test_the_configuration_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError):
        Config().dry_run = True
