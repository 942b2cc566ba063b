"""Verdicts of one root cause form one group, in whatever order they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.grouping import Standing, causes, circles, closure

NAMES = ("a", "b", "c", "d", "e", "f")
EXPLAINS = {"a": ("b", "c"), "b": ("d",), "e": ("d",), "x": ("y",), "y": ("x",)}
EXPLAINED = closure(EXPLAINS)


def ill(*names: str, since: int = 0) -> list[Standing]:
    return [Standing(name, name, since) for name in names]


def test_a_rule_explains_what_its_symptoms_explain() -> None:
    assert EXPLAINED["a"] == {"b", "c", "d"}
    assert EXPLAINED["b"] == {"d"}


def test_rules_that_explain_each_other_do_not_and_are_found() -> None:
    assert EXPLAINED["x"] == EXPLAINED["y"] == frozenset()
    assert circles(EXPLAINS) == ("x", "y")
    assert circles({"a": ("a",)}) == ("a",)
    assert circles({"a": ("b",), "b": ("c",)}) == ()


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(ill("d", "f"), {}, id="strangers"),
        pytest.param(ill("a", "c", "f"), {"c": "a"}, id="direct"),
        pytest.param(ill("a", "d"), {"d": "a"}, id="through-a-rule-that-found-nothing"),
        pytest.param(ill("d", "b", "a"), {"b": "a", "d": "a"}, id="the-root-not-the-nearest"),
        pytest.param(
            [*ill("b", since=5), *ill("e", since=3), *ill("d")], {"d": "e"}, id="the-first-root"
        ),
        pytest.param(ill("e", "b", "d"), {"d": "b"}, id="by-key-among-equals"),
        pytest.param(
            [Standing("a-slow", "a", 1), Standing("a-fast", "a", 0), *ill("c")],
            {"c": "a-fast"},
            id="two-instances-of-one-rule-explain-and-are-no-symptoms",
        ),
        pytest.param(ill("x", "y"), {}, id="a-circle-is-no-group"),
        pytest.param(
            [*ill("c", "f"), Standing("set", "", 0, ("c", "f"))],
            {"c": "set", "f": "set"},
            id="members-belong-to-their-set",
        ),
        pytest.param(
            [*ill("a", "c", "f"), Standing("set", "", 0, ("c", "f"))],
            {"c": "a", "f": "set"},
            id="a-member-with-a-cause-belongs-to-the-cause",
        ),
        pytest.param(
            [*ill("a", "c", "d"), Standing("set", "", 0, ("c", "d"))],
            {"c": "a", "d": "a", "set": "a"},
            id="a-set-of-symptoms-is-a-symptom",
        ),
    ],
)
def test_the_groups_of(standing: list[Standing], expected: dict[str, str]) -> None:
    assert causes(standing, EXPLAINED) == expected


@st.composite
def jobs(draw: st.DrawFn) -> tuple[dict[str, tuple[str, ...]], list[Standing]]:
    """Any rules, any explanations, circles among them, some of them ill, and a set."""
    some = st.sets(st.sampled_from(NAMES)).map(lambda names: tuple(sorted(names)))
    explains = draw(st.dictionaries(st.sampled_from(NAMES), some))
    sick = draw(st.sets(st.sampled_from(NAMES), max_size=6))
    standing = [Standing(name, name, draw(st.integers(0, 3))) for name in sorted(sick)]
    if members := draw(some.map(lambda names: tuple(n for n in names if n in sick))):
        standing.append(Standing("set", "", draw(st.integers(0, 3)), members))
    return explains, standing


@given(jobs(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_change_the_groups(
    job: tuple[dict[str, tuple[str, ...]], list[Standing]], random: object
) -> None:
    explains, standing = job
    explained = closure(explains)
    whole = causes(standing, explained)
    shuffled = [*standing]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert causes(shuffled, closure(dict(reversed(explains.items())))) == whole
    for cause in whole.values():
        above = whole.get(cause, "")
        assert above in whole.values() or not above
        assert above != cause
    for symptom, cause in whole.items():
        assert symptom != cause
        assert cause in {one.key for one in standing}
