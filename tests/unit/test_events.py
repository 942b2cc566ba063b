"""Events: their schemas, golden files, strict JSON, bounded size and ids that mean something."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.events import samples
from trainwarden import events
from trainwarden.events.strict import STAGES, bounded, plain, text
from trainwarden.model import Finding, Json, Severity, Status, Verdict

SCHEMAS = Path(__file__).parents[2] / "docs" / "events"
GOLDEN = {path.stem: path for path in samples.FOLDER.glob("*.json")}
SAMPLES = dict(samples.samples())
FINDING = samples.FOUND["exploding-tensor"]
REPEATABLE = settings(derandomize=True, deadline=None, max_examples=40)


def schema_of(detail_type: str) -> dict[str, Json]:
    file = SCHEMAS / f"{detail_type.lower().replace(' ', '-')}.json"
    schema: dict[str, Json] = json.loads(file.read_text())
    return schema


def check(event: events.Event) -> None:
    """Fail unless an event is strict JSON, small enough, and what its schema says."""
    body = json.dumps(event, allow_nan=False)
    assert events.size(event) <= events.MAX_EVENT_BYTES
    jsonschema.validate(
        json.loads(body),
        schema_of(event["detail-type"]),
        format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
    )


@pytest.mark.parametrize("file", sorted(SCHEMAS.glob("*.json")), ids=lambda file: file.stem)
def test_every_schema_is_a_valid_schema(file: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(file.read_text()))


def test_every_kind_of_event_has_a_schema_and_a_sample() -> None:
    kinds = {value for name, value in vars(events).items() if name.isupper() and " " in str(value)}
    assert len(kinds) == 7
    assert {schema_of(kind)["title"] for kind in kinds} == kinds
    assert {event["detail-type"] for event in SAMPLES.values()} == kinds


def test_every_golden_file_has_a_sample() -> None:
    ours = {name for name, path in GOLDEN.items() if "detail-type" in json.loads(path.read_text())}
    assert {
        name for name in ours if json.loads(GOLDEN[name].read_text())["source"] == "trainwarden"
    } == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_is_what_its_golden_file_shows(name: str) -> None:
    assert SAMPLES[name] == json.loads(GOLDEN[name].read_text())


@pytest.mark.parametrize("name", SAMPLES)
def test_an_event_is_what_its_schema_says(name: str) -> None:
    check(SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_a_schema_describes_every_field_there_is(name: str) -> None:
    detail = schema_of(SAMPLES[name]["detail-type"])["properties"]["detail"]["properties"]
    assert set(SAMPLES[name]["detail"]["data"]) == set(detail["data"]["properties"])
    assert set(SAMPLES[name]["detail"]["metadata"]) <= set(detail["metadata"]["properties"])


@pytest.mark.parametrize("field", ["job", "rule", "severity", "status", "actions"])
def test_a_schema_refuses_an_event_that_lacks_a_field(field: str) -> None:
    event = json.loads(GOLDEN["verdict-overfit"].read_text())
    del event["detail"]["data"][field]
    with pytest.raises(jsonschema.ValidationError):
        check(event)


def id_of(event: events.Event) -> str:
    found: str = event["detail"]["metadata"]["event_id"]
    return found


def finding_event(finding: Finding = FINDING, time: float = samples.NOW) -> events.Event:
    return events.finding_recorded(samples.RECORD, finding, severity=Severity.ERROR, time=time)


def test_the_same_fact_has_the_same_id_whenever_it_is_told() -> None:
    assert id_of(finding_event(time=1.0)) == id_of(finding_event(time=2.0))


@pytest.mark.parametrize("change", [{"step": 7}, {"tensor": "other"}, {"rule": "Other"}])
def test_another_fact_has_another_id(change: dict[str, Json]) -> None:
    assert id_of(finding_event(replace(FINDING, **change))) != id_of(finding_event())


def test_an_action_is_told_to_the_rules_own_addresses_too() -> None:
    tags = {
        "trainwarden:notify": "team@example.com",
        "trainwarden:rule:Overfit": "action=stop+email:me@example.com",
    }
    event = events.action_taken(
        samples.record(tags), kind="stop", rule="Overfit", result={"outcome": "stopped"}, time=1.0
    )
    assert event["detail"]["data"]["notify"] == ["team@example.com", "me@example.com"]
    check(event)


def test_another_job_or_run_has_another_id() -> None:
    one = id_of(finding_event())
    record = samples.RECORD
    for other in (
        replace(record, job="other"),
        replace(record, manifest={**record.manifest, "run": "run-2"}),
    ):
        event = events.finding_recorded(other, FINDING, severity=Severity.ERROR, time=1.0)
        assert id_of(event) != one


def test_samples_have_ids_of_their_own() -> None:
    told = {
        name: id_of(event)
        for name, event in SAMPLES.items()
        # The same fact, told of another configuration.
        if name not in {"job-opened-with-problems", "verdict-without-permission", "verdict-muted"}
    }
    assert len(set(told.values())) == len(told)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (np.float64("nan"), "NaN"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1.0, np.nan]), [1.0, "NaN"]),
        (2**53, 2**53),
        (2**60, 2.0**60),
        (10**400, "Infinity"),
        (-(10**400), "-Infinity"),
        ((1, "a"), [1, "a"]),
        ({"b", "a"}, ["a", "b"]),
        ({1: Status.ERROR}, {"1": "Error"}),
        ("\ud800", "?"),
        (b"x", "b'x'"),
        (None, None),
    ],
)
def test_anything_becomes_strict_json(value: object, told: Json) -> None:
    found = plain(value)
    assert found == told
    assert type(found) is type(told)
    json.dumps(found, allow_nan=False).encode()


def test_values_that_json_does_not_know_arrive_by_name() -> None:
    bad = replace(FINDING, value=math.nan, limit=-math.inf, evidence={"x": [math.inf]})
    data = finding_event(bad)["detail"]["data"]
    assert (data["value"], data["limit"], data["evidence"]) == (
        "NaN",
        "-Infinity",
        {"x": ["Infinity"]},
    )
    check(finding_event(bad))


def test_a_small_event_is_not_cut() -> None:
    event = finding_event()
    assert "truncated" not in event["detail"]["metadata"]
    assert event["detail"]["data"]["message"] == FINDING.message


HUGE: dict[str, Callable[[], Finding]] = {
    "one long text": lambda: replace(FINDING, message="m" * 10**6),
    "a long list": lambda: replace(FINDING, evidence={"steps": list(range(10**5))}),
    "many names": lambda: replace(FINDING, evidence={f"k{i}": i for i in range(10**5)}),
    "long names": lambda: replace(FINDING, evidence={"k" * 10**5 + str(i): i for i in range(9)}),
    "deep nesting": lambda: replace(FINDING, evidence=nested(80, 2)),
    "wide nesting": lambda: replace(FINDING, evidence=nested(4, 1_000)),
    "control characters": lambda: replace(FINDING, message="\x01" * 10**5, tensor="\x02" * 10**5),
    "four-byte letters": lambda: replace(
        FINDING, message="\U0001f40d" * 10**5, tensor="\U0001f40d" * 10**5
    ),
    "many remedies": lambda: replace(FINDING, remedies=("r" * 500,) * 5_000),
    "everything": lambda: replace(
        FINDING,
        message="\x01" * 10**4,
        tensor="\x01" * 10**4,
        rule="\x01" * 10**4,
        remedies=("\x01" * 500,) * 500,
        evidence={
            f"{i}\x01" * 500: {f"{j}\x01" * 500: "\x01" * 500 for j in range(20)} for i in range(20)
        },
    ),
}


def nested(depth: int, width: int) -> dict[str, Json]:
    return (
        {}
        if depth == 0
        else {str(i): nested(depth - 1, width if i == 0 else 1) for i in range(width)}
    )


@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_event_is_cut_to_fit_and_says_so(kind: str) -> None:
    event = finding_event(HUGE[kind]())
    check(event)
    assert event["detail"]["metadata"]["truncated"] is True
    assert event == finding_event(HUGE[kind]())
    assert event["detail"]["data"]["step"] == FINDING.step


def test_a_job_with_very_many_rules_and_problems_still_fits() -> None:
    verdicts = [
        Verdict(f"rule-{i}" * 9, "LOS002", Status.ISSUES_FOUND, note="\x01" * 2_000)
        for i in range(2_000)
    ]
    check(events.job_closed(samples.RECORD, verdicts, time=samples.NOW))
    tags = {f"trainwarden:rule:{i}" + "x" * 90: "y" * 250 for i in range(50)}
    check(events.job_opened(samples.record(tags), time=samples.NOW))


@REPEATABLE
@given(
    st.dictionaries(
        st.text(max_size=30),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=30,
        ),
        max_size=20,
    ),
    st.integers(6_000, 20_000),
)
def test_whatever_is_bounded_keeps_its_keys_and_its_limit(
    data: dict[str, Json], budget: int
) -> None:
    fitted, cut = bounded(data, budget)
    assert set(fitted) == set(data)
    assert events.size(fitted) <= budget
    if not cut:
        assert fitted == plain(data, STAGES[0]._replace(chars=10**6, items=10**6, depth=9))


def test_cut_text_ends_with_an_ellipsis() -> None:
    assert text("abcdef", 4) == "abc…"
    assert text("abcd", 4) == "abcd"
