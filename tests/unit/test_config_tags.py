"""Tags: their alphabet, each kind of tag, and every way to write one wrong."""

from __future__ import annotations

import pytest

from trainwarden.config import is_ours, resolve
from trainwarden.rules import names


def problems(tags: dict[str, str]) -> list[tuple[str, str, str]]:
    found = resolve(tags=tags).problems
    assert all(problem.source == "tag" for problem in found)
    return [(problem.key, problem.found, problem.nearest) for problem in found]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("default", list(names())),
        ("Overfit DeadRelu", ["Overfit", "DeadRelu"]),
        ("overfit dead_relu", ["Overfit", "DeadRelu"]),
        ("LOS002 act001", ["Overfit", "DeadRelu"]),
        ("Overfit Overfit", ["Overfit"]),
        ("none", []),
        ("", list(names())),
        ("default -Overfit", [name for name in names() if name != "Overfit"]),
        ("-Overfit", [name for name in names() if name != "Overfit"]),
    ],
)
def test_the_tag_rules_chooses(value: str, expected: list[str]) -> None:
    config = resolve(tags={"trainwarden:rules": value})
    assert [spec.key for spec in config.rules] == expected
    assert config.problems == ()


def test_a_rule_tag_makes_an_instance_of_its_own_name() -> None:
    config = resolve(
        tags={
            "trainwarden:rules": "strict DeadRelu",
            "trainwarden:rule:strict": "rule=DeadRelu threshold_layer=10",
        }
    )
    assert [(spec.key, spec.name) for spec in config.rules] == [
        ("strict", "DeadRelu"),
        ("DeadRelu", "DeadRelu"),
    ]
    assert config.rules[0].parameters == {"threshold_layer": 10.0}


def test_spaces_around_the_equals_sign_do_not_matter() -> None:
    config = resolve(tags={"trainwarden:rule:Overfit": "patience = 3  action =stop"})
    spec = next(spec for spec in config.rules if spec.key == "Overfit")
    assert (spec.parameters, spec.actions) == ({"patience": 3}, ("stop",))


def test_lists_are_written_with_plus_since_tags_know_no_comma() -> None:
    tags = {
        "trainwarden:rule:ExplodingTensor": "collection_names=weights+losses action=stop+notify"
    }
    spec = next(spec for spec in resolve(tags=tags).rules if spec.key == "ExplodingTensor")
    assert spec.parameters == {"collection_names": ["weights", "losses"]}
    assert spec.actions == ("stop", "notify")


def test_more_capture_is_an_action_beside_others() -> None:
    tags = {"trainwarden:rule:Overfit": "action=capture-more+email:a+b@example.com+stop"}
    config = resolve(tags=tags)
    assert config.problems == ()
    (spec,) = (rule for rule in config.rules if rule.key == "Overfit")
    assert spec.actions == ("capture-more", "email:a+b@example.com", "stop")


def test_an_action_may_name_an_address() -> None:
    tags = {"trainwarden:rule:Overfit": "action=email:ml@example.com"}
    spec = next(spec for spec in resolve(tags=tags).rules if spec.key == "Overfit")
    assert spec.actions == ("email:ml@example.com",)


@pytest.mark.parametrize(
    ("value", "stop"),
    [("allow", True), ("deny", False), ("never", False), ("no", False), ("", False)],
)
def test_only_the_word_allow_permits_a_stop(value: str, stop: bool) -> None:  # noqa: FBT001 (a table)
    config = resolve(tags={"trainwarden:stop": value})
    assert (config.stop, config.problems) == (stop, ())


@pytest.mark.parametrize("value", ["Allow", "ALLOW", "alow", "true", "allow all"])
def test_a_wrong_word_never_permits_a_stop_and_is_noted(value: str) -> None:
    config = resolve(tags={"trainwarden:stop": value})
    assert not config.stop
    assert [problem.key for problem in config.problems] == ["trainwarden:stop"]


@pytest.mark.parametrize(
    ("value", "muted"),
    [
        ("all", ("*",)),
        ("Overfit act001", ("Overfit", "DeadRelu")),
        ("NoData", ("NoData",)),
        ("", ()),
    ],
)
def test_the_tag_mute_names_rules(value: str, muted: tuple[str, ...]) -> None:
    config = resolve(tags={"trainwarden:mute": value})
    assert (config.muted, config.problems) == (muted, ())


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("trainwarden:rulez", "trainwarden:rules"),
        ("Trainwarden:Stop", "trainwarden:stop"),
        ("trainwarden-notify", "trainwarden:notify"),
        ("trainwarden:notfiy", "trainwarden:notify"),
    ],
)
def test_a_misspelt_tag_names_the_nearest(key: str, nearest: str) -> None:
    assert problems({key: "x"}) == [(key, repr(key), nearest)]


@pytest.mark.parametrize(
    ("value", "found", "nearest"),
    [
        ("patiense=3", "'patiense'", "patience"),
        ("patience=many", "'many'", ""),
        ("patience=0", "'0'", ""),
        ("patience=30m", "'30m'", ""),
        ("ratio_threshold=-1", "'-1'", ""),
        ("action=stopp", "'stopp'", "stop"),
        ("severity=eror", "'eror'", "error"),
        ("modes=TRIAN", "'TRIAN'", "TRAIN"),
        ("start_step=-1", "'-1'", ""),
        ("end_step=0", "'0'", ""),
        ("every=0.5", "'0.5'", ""),
        ("whatever", "'whatever'", ""),
        ("action=email:nobody", "'email:nobody'", ""),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest(value: str, found: str, nearest: str) -> None:
    ((key, wrong, near),) = problems({"trainwarden:rule:Overfit": value})
    assert key.startswith("trainwarden:rule:Overfit")
    assert (wrong, near) == (found, nearest)


def test_a_tag_for_a_rule_that_does_not_exist_names_the_nearest() -> None:
    assert problems({"trainwarden:rule:Overfitt": "patience=3"}) == [
        ("trainwarden:rule:Overfitt", "'Overfitt'", "Overfit")
    ]


def test_an_unknown_setting_without_a_near_one_lists_what_there_is() -> None:
    config = resolve(tags={"trainwarden:rule:StalledTrainingRule": "xyzzy=1"})
    assert config.problems[0].expected == (
        "a setting of StalledTrainingRule (threshold, floor, cadence)"
    )


@pytest.mark.parametrize("value", ["50%", "a,b", "x" * 257, "a;b", "(1)", "a\x00b"])
def test_a_value_that_no_tag_can_have_is_refused_whole(value: str) -> None:
    ((key, _, _),) = problems({"trainwarden:rules": value})
    assert key == "trainwarden:rules"


def test_letters_of_every_alphabet_are_letters() -> None:
    assert problems({"trainwarden:mute": "Überfit"}) == [
        ("trainwarden:mute", "'Überfit'", "Overfit")
    ]


@pytest.mark.parametrize("address", ["ml@", "12345", "team", "https://hooks.example.com"])
def test_what_is_no_address_is_noted(address: str) -> None:
    config = resolve(tags={"trainwarden:notify": f"{address} a@b.de"})
    assert config.notify == ("a@b.de",)
    assert [problem.found for problem in config.problems] == [repr(address)]


def test_a_nonce_of_other_characters_is_refused() -> None:
    config = resolve(tags={"trainwarden:nonce": "a b"})
    assert (config.nonce, len(config.problems)) == ("", 1)


def test_foreign_tags_are_nobodys_business() -> None:
    assert problems({"team": "vision", "aws:cloudformation:stack-name": "x", "": ""}) == []
    assert not is_ours("team")
    assert is_ours("trainwarden:stop")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (
            {"trainwarden:rule:Overfit": "patience=3 patience=5"},
            [("trainwarden:rule:Overfit patience", "'5'", "")],
        ),
        (
            {"trainwarden:rule:LOS002": "patience=3", "trainwarden:rule:Overfit": "patience=5"},
            [("trainwarden:rule:Overfit patience", "'5'", "")],
        ),
        (
            {"trainwarden:rule:Overfit": "patience=3", "trainwarden:rule:overfit": "patience=3"},
            [],
        ),
    ],
)
def test_two_values_of_one_setting_are_told_and_the_first_counts(
    tags: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    assert problems(tags) == expected
    (overfit,) = [spec for spec in resolve(tags=tags).rules if spec.name == "Overfit"]
    assert overfit.parameters == {"patience": 3}


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (
            {"trainwarden:rule:DeadRelu": "rule=Overfit"},
            [("trainwarden:rule:DeadRelu", "'DeadRelu'", "")],
        ),
        (
            {"trainwarden:rule:-Overfit": "patience=3"},
            [("trainwarden:rule:-Overfit", "'-Overfit'", "Overfit")],
        ),
        ({"trainwarden:rules": "-default"}, [("trainwarden:rules", "'-default'", "default")]),
        ({"trainwarden:mute": "-Overfit"}, [("trainwarden:mute", "'-Overfit'", "Overfit")]),
        (
            {"trainwarden:set:learning": "Overfit", "trainwarden:mute": "laerning"},
            [("trainwarden:mute", "'laerning'", "learning")],
        ),
        (
            {"trainwarden:rule:Overfit": "action="},
            [("trainwarden:rule:Overfit action", "''", "")],
        ),
    ],
)
def test_a_name_in_the_wrong_place_is_told(
    tags: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    assert problems(tags) == expected
    assert {spec.name for spec in resolve(tags=tags).rules} == {*names()}
