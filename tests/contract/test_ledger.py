"""What every Ledger promises."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from trainwarden.errors import BadInputError, ConflictError, KeyGrammarError
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus, Ledger

FINDING, INCIDENT, ACTION, OUTBOX = EntryKind

FULL = JobRecord(
    job="resnet50-2026",
    version=1,
    status=JobStatus.OPEN,
    opened_at=1_790_000_000.25,
    last_seen=1_790_000_001.5,
    closing_at=0.1 + 0.2,
    gap_since=5e-324,
    config={"rules": [{"name": "Overfit", "parameters": {"patience": 3, "on": True, "x": None}}]},
    training={"arn": "arn:aws:sagemaker:eu-central-1:1:training-job/resnet50-2026"},
    manifest={"tensors": 429, "layout": "0123456789abcdef"},
    watermarks={0: (17, 3), 9_999: (2**40, 0)},
    ended={0: 16, 3: -1},
    rules={"LossNotDecreasing": {"best": 1e-300, "window": [1, 2.5, -0.0], "name": "größe→∞ 🛰"}},
    outcome="Completed",
    progress={"attempts": {"0": 2}, "late": [3]},
)


def finding(number: int, **body: Any) -> Entry:
    return Entry(FINDING, f"{number:012d}#Overfit#abc", {"number": number, **body})


def test_an_unknown_job_is_none(ledger: Ledger) -> None:
    assert ledger.load("demo") is None
    assert list(ledger.entries("demo", FINDING)) == []
    assert list(ledger.jobs()) == []
    assert list(ledger.open_jobs()) == []


def test_a_record_comes_back_as_it_was(ledger: Ledger) -> None:
    ledger.commit(FULL)
    assert ledger.load(FULL.job) == FULL
    assert ledger.load("resnet50") is None


def test_not_a_number_and_infinities_come_back(ledger: Ledger) -> None:
    tricky = {"words": ["NaN", "Infinity", "-Infinity", "=NaN", "==NaN", "a NaN", "NaN", ""]}
    body = {"nan": math.nan, "inf": [math.inf, {"minus": -math.inf}], "NaN": 1.5, **tricky}
    ledger.commit(replace(FULL, rules=body, last_seen=math.inf), [finding(1, **body)])
    found = ledger.load(FULL.job)
    assert found is not None
    assert found.last_seen == math.inf
    for read in (found.rules, next(ledger.entries(FULL.job, FINDING)).body):
        assert math.isnan(read["nan"])
        assert read["inf"] == [math.inf, {"minus": -math.inf}]
        assert read["words"] == tricky["words"]
        assert read["NaN"] == 1.5


def test_numbers_come_back_as_python_numbers(ledger: Ledger) -> None:
    ledger.commit(FULL, [finding(1, value=0.1, count=2**53 + 1, flag=True)])
    body = next(ledger.entries(FULL.job, FINDING)).body
    assert [type(body[name]) for name in ("value", "count", "flag")] == [float, int, bool]
    assert body["count"] == 2**53 + 1
    found = ledger.load(FULL.job)
    assert found is not None
    values = [found.version, found.opened_at, *found.watermarks, *found.watermarks[0]]
    assert not any(isinstance(value, Decimal) for value in values)


def test_any_unicode_comes_back(ledger: Ledger) -> None:
    text = 'täg "quoted" \\ \n \x00 \u2028 🛰 \ud800 日本'
    ledger.commit(replace(FULL, rules={text: text}), [finding(1, text=text)])
    found = ledger.load(FULL.job)
    assert found is not None
    assert found.rules == {text: text}
    assert next(ledger.entries(FULL.job, FINDING)).body["text"] == text


def test_numpy_numbers_come_back_as_python_numbers(ledger: Ledger) -> None:
    body = {"n": np.int64(3), "x": np.float64(0.25), "y": np.float32(math.nan), "b": np.bool_(1)}
    ledger.commit(replace(FULL, rules=body), [finding(1, **body)])
    found = ledger.load(FULL.job)
    assert found is not None
    for read in (found.rules, next(ledger.entries(FULL.job, FINDING)).body):
        assert {name: type(read[name]) for name in body} == {
            "n": int,
            "x": float,
            "y": float,
            "b": bool,
        }
        assert math.isnan(read["y"])


@pytest.mark.parametrize("value", [np.zeros(3), object(), {1, 2}, b"bytes"])
def test_what_is_no_json_is_refused_and_nothing_written(ledger: Ledger, value: object) -> None:
    with pytest.raises(TypeError):
        ledger.commit(FULL, [finding(1), finding(2, value=value)])
    assert ledger.load(FULL.job) is None
    assert list(ledger.entries(FULL.job, FINDING)) == []


def test_nothing_is_shared_with_the_caller(ledger: Ledger) -> None:
    state = {"streak": [1]}
    ledger.commit(replace(FULL, rules=state))
    state["streak"].append(2)
    found = ledger.load(FULL.job)
    assert found is not None
    assert found.rules == {"streak": [1]}
    found.rules["streak"].append(3)
    assert ledger.load(FULL.job) == replace(FULL, rules={"streak": [1]})


@pytest.mark.parametrize("version", [1, 2, 4, 9])
def test_a_conflict_loses_the_whole_commit(ledger: Ledger, version: int) -> None:
    ledger.commit(FULL, [finding(1)])
    ledger.commit(replace(FULL, version=2), [finding(2)])
    loser = replace(FULL, version=version, outcome="lost", status=JobStatus.CLOSED)
    with pytest.raises(ConflictError):
        ledger.commit(loser, [finding(3), Entry(OUTBOX, "0000000003", {"events": [{}]})])
    with pytest.raises(ConflictError):
        ledger.commit(loser)
    assert ledger.load(FULL.job) == replace(FULL, version=2)
    assert [e.body["number"] for e in ledger.entries(FULL.job, FINDING)] == [1, 2]
    assert list(ledger.entries(FULL.job, OUTBOX)) == []
    assert list(ledger.open_jobs()) == [FULL.job]


@pytest.mark.parametrize("entries", [[], [finding(1)]], ids=["bare", "with-entry"])
def test_the_first_commit_of_a_job_has_version_one(ledger: Ledger, entries: list[Entry]) -> None:
    with pytest.raises(ConflictError):
        ledger.commit(replace(FULL, version=2), entries)
    with pytest.raises(BadInputError, match="from 1"):
        ledger.commit(replace(FULL, version=0), entries)
    assert ledger.load(FULL.job) is None
    ledger.commit(FULL, entries)
    assert ledger.load(FULL.job) == FULL


def test_ninety_six_entries_fit_and_one_more_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BadInputError, match="at most 96 entries"):
        ledger.commit(FULL, [finding(n) for n in range(97)])
    assert ledger.load(FULL.job) is None
    ledger.commit(FULL, [finding(n) for n in range(96)])
    assert [e.body["number"] for e in ledger.entries(FULL.job, FINDING)] == list(range(96))


def test_more_entries_than_one_page_all_come_once(ledger: Ledger) -> None:
    text = "x" * 20_000  # DynamoDB answers 1 MB at a time
    ledger.commit(FULL, [finding(n, text=text) for n in range(96)])
    found = list(ledger.entries(FULL.job, FINDING))
    assert [e.body for e in found] == [{"number": n, "text": text} for n in range(96)]


def test_entries_ascend_by_id_and_keep_to_their_job_and_kind(ledger: Ledger) -> None:
    ids = ["a", "B", "-", "é", "z#1", "z#10", "z#2", "~", "日", "\U0001f6f0", "\uffff"]
    ledger.commit(FULL, [Entry(ACTION, id_, {"id": id_}) for id_ in ids])
    other = replace(FULL, job="resnet50-2026x")
    ledger.commit(other, [Entry(ACTION, "other", {}), Entry(INCIDENT, "rejected#0000#1", {"n": 1})])
    assert [e.id for e in ledger.entries(FULL.job, ACTION)] == sorted(ids)
    assert all(e == Entry(ACTION, e.id, {"id": e.id}) for e in ledger.entries(FULL.job, ACTION))
    assert list(ledger.entries(FULL.job, INCIDENT)) == []
    assert list(ledger.entries(other.job, INCIDENT)) == [
        Entry(INCIDENT, "rejected#0000#1", {"n": 1})
    ]


def test_the_first_entry_of_an_id_stands(ledger: Ledger) -> None:
    ledger.commit(FULL, [finding(1, text="first"), finding(1, text="same commit")])
    ledger.commit(replace(FULL, version=2), [finding(1, text="later"), finding(2, text="new")])
    assert [e.body["text"] for e in ledger.entries(FULL.job, FINDING)] == ["first", "new"]
    assert ledger.load(FULL.job) == replace(FULL, version=2)


def test_outbox_entries_come_back_whole(ledger: Ledger) -> None:
    words = ["NaN", "Infinity", "=NaN", 'größe "→" \u2028 🛰', "\ud800"]
    events = [{"detail-type": "Verdict Changed", "detail": {"data": {"value": words}}}]
    ledger.commit(FULL, [Entry(OUTBOX, "0000000001", {"events": events})])
    assert list(ledger.entries(FULL.job, OUTBOX)) == [
        Entry(OUTBOX, "0000000001", {"events": events})
    ]


def test_numbers_json_has_not_leave_through_the_outbox_as_words(ledger: Ledger) -> None:
    values = [math.nan, math.inf, -math.inf, np.float32(0.5)]
    ledger.commit(FULL, [Entry(OUTBOX, "0000000001", {"events": [{"values": values}]})])
    [found] = ledger.entries(FULL.job, OUTBOX)
    assert found.body == {"events": [{"values": ["NaN", "Infinity", "-Infinity", 0.5]}]}


@pytest.mark.parametrize("id_", ["", "x" * 961])
def test_an_entry_id_has_one_to_960_bytes(ledger: Ledger, id_: str) -> None:
    with pytest.raises(BadInputError, match="960 bytes"):
        ledger.commit(FULL, [Entry(ACTION, id_, {})])
    ledger.commit(FULL, [Entry(ACTION, "x" * 960, {})])


@pytest.mark.parametrize("job", ["", "../demo", "a/b", "a#b", "-a", "ä", "x" * 64])
def test_a_job_name_outside_the_grammar_is_refused(ledger: Ledger, job: str) -> None:
    with pytest.raises(KeyGrammarError):
        ledger.commit(replace(FULL, job=job))
    with pytest.raises(KeyGrammarError):
        ledger.load(job)
    with pytest.raises(KeyGrammarError):
        list(ledger.entries(job, FINDING))


def test_a_job_is_open_until_it_is_closed(ledger: Ledger) -> None:
    record = replace(FULL, status=JobStatus.ANNOUNCED)
    ledger.commit(replace(FULL, job="other"))
    for status in JobStatus:
        ledger.commit(replace(record, status=status))
        record = replace(record, version=record.version + 1)
        expected = {"other"} if status is JobStatus.CLOSED else {"other", record.job}
        assert set(ledger.open_jobs()) == expected
    assert {found.job: found.status for found in ledger.jobs()} == {
        "other": JobStatus.OPEN,
        record.job: JobStatus.CLOSED,
    }


def test_every_job_is_listed_with_its_record(ledger: Ledger) -> None:
    expected = {f"job-{n}": replace(FULL, job=f"job-{n}") for n in range(30)}
    for record in expected.values():
        ledger.commit(record, [finding(1)])
    assert {record.job: record for record in ledger.jobs()} == expected
    assert sorted(ledger.open_jobs()) == sorted(expected)


def test_a_large_state_comes_back(ledger: Ledger) -> None:
    state = {f"layer{n}.weight": [n / 7, n, True] for n in range(10_000)}
    ledger.commit(replace(FULL, rules=state))
    found = ledger.load(FULL.job)
    assert found is not None
    assert found.rules == state


@pytest.mark.parametrize("entries_each", [0, 2])
def test_concurrent_committers_lose_nothing(ledger: Ledger, entries_each: int) -> None:
    writers, commits = 4, 6

    def work(writer: int) -> int:
        conflicts = 0
        for number in range(commits):
            done = False
            while not done:
                seen = ledger.load(FULL.job) or replace(FULL, version=0, rules={"sum": 0})
                ours = replace(seen, version=seen.version + 1, rules={"sum": seen.rules["sum"] + 1})
                ids = [f"{writer}#{number}#{n}" for n in range(entries_each)]
                try:
                    ledger.commit(ours, [Entry(ACTION, id_, {"by": writer}) for id_ in ids])
                    done = True
                except ConflictError:
                    conflicts += 1
        return conflicts

    with ThreadPoolExecutor(writers) as pool:
        conflicts = list(pool.map(work, range(writers)))
    found = ledger.load(FULL.job)
    assert found is not None
    assert found.version == found.rules["sum"] == writers * commits, conflicts
    assert len(list(ledger.entries(FULL.job, ACTION))) == writers * commits * entries_each
