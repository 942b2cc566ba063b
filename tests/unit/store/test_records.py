from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.errors import BadInputError
from trainwarden.store import records
from trainwarden.store.ports import JobRecord, JobStatus, TrainingJob

WORDS = st.sampled_from(["NaN", "Infinity", "-Infinity", "=NaN", "==-Infinity", "=", "nan", "NaN "])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | WORDS, inner, max_size=4)
    ),
    max_leaves=20,
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in strict JSON")


@given(JSON)
def test_any_json_comes_back_and_the_text_is_strict_ascii(body: Any) -> None:
    text = records.dumps(body)
    json.loads(text, parse_constant=refuse)
    assert text.isascii()
    assert repr(records.loads(text)) == repr(body)  # repr: NaN equals itself, 1 is not 1.0 or True


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, '"NaN"'),
        (-math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        ("NaN", '"=NaN"'),
        ("=NaN", '"==NaN"'),
        ("NaN\n", '"NaN\\n"'),
        ("+Infinity", '"+Infinity"'),
    ],
)
def test_non_finite_numbers_are_strings_and_such_strings_are_escaped(value: Any, text: str) -> None:
    assert records.dumps(value) == text
    assert repr(records.loads(text)) == repr(value).replace("-nan", "nan")


def test_tuples_mappings_and_words_are_written_as_json() -> None:
    body = MappingProxyType({"at": (1, math.nan), "status": JobStatus.OPEN})
    assert records.dumps(body) == '{"at":[1,"NaN"],"status":"Open"}'
    assert records.dumps(MappingProxyType({"at": (1, 2)})) == '{"at":[1,2]}'


@given(JSON)
def test_a_message_is_strict_json_that_others_read_as_it_is(body: Any) -> None:
    text = records.message(body)
    text.encode()
    assert json.loads(text, parse_constant=refuse) == records.loads_message(text)
    assert records.message(records.loads_message(text)) == text


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", b"\xff", "{'a': 1}", "1 2"])
def test_what_is_not_strict_json_is_refused_with_a_remedy(text: str | bytes) -> None:
    with pytest.raises(BadInputError, match=r"strict JSON.*; restore it from a backup"):
        records.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "{}",
        '{"job": "a", "status": "Ajar", "watermarks": {}, "ended": {}}',
        '{"job": "a", "status": "Open", "watermarks": {"x": [1, 2]}, "ended": {}}',
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="the record of a job"):
        records.record_from_text(text)


def test_fields_of_a_newer_version_are_ignored() -> None:
    body = json.loads(records.record_to_text(JobRecord("demo", version=3)))
    body["colour"] = "red"
    assert records.record_from_text(json.dumps(body)) == JobRecord("demo", version=3)


@pytest.mark.parametrize("text", ["1", "[1]", '[{"kind": "?", "id": "a", "body": {}}]', "[{}]"])
def test_what_is_no_list_of_entries_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="a list of entries"):
        records.entries_from_text(text)


def test_a_training_job_comes_back_through_json() -> None:
    training = TrainingJob(
        name="demo",
        arn="arn:aws:sagemaker:eu-central-1:1:training-job/demo",
        status="InProgress",
        tags={"trainwarden:stop": "allow"},
        hyperparameters={"lr": "0.1"},
        debug_rules=({"RuleConfigurationName": "Overfit", "RuleParameters": {"a": "1"}},),
        instance="ml.g5.xlarge",
    )
    body = json.loads(records.dumps(records.training_to_json(training) | {"newer": 1}))
    assert records.training_from_json(body) == training
    assert records.training_from_json({}) is None
