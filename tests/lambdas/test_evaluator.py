"""The evaluator: SQS messages with S3's notices, partial failures, metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lambdas.evaluator.handler import handler
from lambdas.shared import wiring
from tests.lambdas.conftest import Context, Printed, golden, notices
from tests.unit.pipeline.test_limits import with_workers
from tests.unit.pipeline.world import JOB, NAN, World, obs
from trainwarden.errors import ConflictError, RetryableError
from trainwarden.pipeline import Ingested

Run = Callable[[], Printed]


def failed(answer: dict[str, Any]) -> list[str]:
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


class Scripted:
    """A pipeline that answers as it is told and remembers how it was called."""

    def __init__(self, *answers: Ingested | Exception) -> None:
        self.answers, self.calls = list(answers), list[tuple[str, tuple[str, ...]]]()

    def ingest(self, job: str, *, keys: Iterable[str] = (), until: float) -> Ingested:
        assert until > 0
        self.calls.append((job, tuple(keys)))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    def make(*answers: Ingested | Exception) -> Scripted:
        pipeline = Scripted(*answers)
        monkeypatch.setattr(wiring, "pipeline", lambda: pipeline)
        return pipeline

    return make


def test_a_batch_of_notices_is_folded_judged_and_measured(
    world: World, context: Context, printed: Run
) -> None:
    keys = [world.manifest(), world.steps(0, obs(0)), world.steps(1, obs(1, NAN)), world.end(1)]
    assert handler(notices(*keys), context) == {"batchItemFailures": []}
    assert world.findings() == [("ExplodingTensor", 1)]
    told = printed()
    assert told.metrics["ObjectsFolded"] == [2.0]
    assert told.metrics["FindingsRecorded"] == [1.0]
    assert len(told.metrics["FoldLagSeconds"]) == 1
    assert told.dimensions == {"service"}
    assert {row.get("job") for row in told.lines} == {JOB}


def test_duplicates_and_reordering_change_nothing(world: World, context: Context) -> None:
    keys = [world.manifest(), world.steps(0, obs(0)), world.steps(1, obs(1, NAN)), world.end(1)]
    for event in (notices(*reversed(keys)), notices(*keys, *keys)):
        assert handler(event, context) == {"batchItemFailures": []}
    assert world.findings() == [("ExplodingTensor", 1)]
    assert world.record().version == 1


def test_a_job_is_folded_once_with_the_keys_of_all_its_notices(
    context: Context, scripted: Callable[..., Scripted]
) -> None:
    pipeline = scripted(Ingested("a"), Ingested("b"))
    keys = ["jobs/a/manifest.tw", "jobs/b/manifest.tw", "jobs/a/steps/0000/0000000000.tw"]
    assert failed(handler(notices(*keys, keys[0]), context)) == []
    assert pipeline.calls == [("a", (keys[0], keys[2], keys[0])), ("b", (keys[1],))]


def test_only_the_messages_of_a_job_that_failed_go_back(
    context: Context, scripted: Callable[..., Scripted], printed: Run
) -> None:
    busy = ConflictError("another writer")
    scripted(busy, Ingested("b", folded=3), busy)
    keys = ["jobs/a/manifest.tw", "jobs/b/manifest.tw", "jobs/a/end/0000.tw"]
    assert failed(handler(notices(*keys), context)) == ["m0", "m2"]
    told = printed()
    assert told.metrics["ObjectsFolded"] == [3.0]
    assert [row["reason"] for row in told.lines if row["level"] == "WARNING"] == [
        "another writer",
        "another writer",
    ]


def test_a_message_that_failed_is_done_by_the_jobs_next_message(
    context: Context, scripted: Callable[..., Scripted]
) -> None:
    pipeline = scripted(RetryableError("throttled"), Ingested("a"))
    keys = ["jobs/a/manifest.tw", "jobs/a/end/0000.tw"]
    assert failed(handler(notices(*keys), context)) == ["m0"]
    assert pipeline.calls[1] == ("a", tuple(keys))


def test_a_batch_of_nothing_but_failures_does_not_fail_the_invocation(
    context: Context, scripted: Callable[..., Scripted]
) -> None:
    scripted(RetryableError("throttled"))
    assert failed(handler(notices("jobs/a/manifest.tw"), context)) == ["m0"]


def test_a_defect_is_logged_with_its_traceback(
    context: Context, scripted: Callable[..., Scripted], printed: Run
) -> None:
    scripted(ZeroDivisionError("a bug"))
    assert failed(handler(notices("jobs/a/manifest.tw"), context)) == ["m0"]
    (row,) = [row for row in printed().lines if row["level"] == "ERROR"]
    assert "ZeroDivisionError: a bug" in row["exception"]


def test_a_long_job_is_folded_until_nothing_is_left(
    context: Context, scripted: Callable[..., Scripted], printed: Run
) -> None:
    pipeline = scripted(
        Ingested("a", folded=5, more=True),
        Ingested("a", folded=5, more=True),
        Ingested("a", folded=1, dropped={"queue full": 2}, rejected=1, lost=3, crashed=1),
    )
    handler(notices("jobs/a/manifest.tw"), context)
    assert len(pipeline.calls) == 3
    told = printed().metrics
    assert told.pop("FoldLagSeconds")
    assert told == {
        "ObjectsFolded": [11.0],
        "UploadsDropped": [2.0],
        "DataRejected": [1.0],
        "GapsSkipped": [3.0],
        "RuleCrashes": [1.0],
    }


def test_what_time_does_not_allow_is_left_to_the_next_call(
    scripted: Callable[..., Scripted],
) -> None:
    pipeline = scripted(Ingested("a", more=True))
    assert failed(handler(notices("jobs/a/manifest.tw"), Context(remaining_ms=8_000))) == []
    assert len(pipeline.calls) == 1


def test_the_age_of_a_duplicate_is_no_lag(
    context: Context, scripted: Callable[..., Scripted], printed: Run
) -> None:
    scripted(Ingested("a"))
    handler(notices("jobs/a/manifest.tw"), context)
    assert printed().metrics == {}


def test_a_notice_with_an_odd_time_is_folded_like_any_other(
    world: World, context: Context, printed: Run
) -> None:
    event = notices(world.manifest(), world.steps(0, obs(0)))
    for record in event["Records"]:
        record["body"] = record["body"].replace("2026-11-30T12:00:00.123Z", "yesterday")
    assert failed(handler(event, context)) == []
    assert printed().metrics["FoldLagSeconds"][0] < 60


@pytest.mark.parametrize(
    "key",
    [
        "jobs/../manifest.tw",
        "jobs/a/manifest.tw.bak.tw",
        "other/a.tw",
        "jobs/%2E%2E/steps/0000/0000000000.tw",
        "jobs/a%2Fb/manifest.tw",
        "jobs/" + "a" * 64 + "/manifest.tw",
    ],
)
def test_a_foreign_key_is_logged_and_never_comes_back(
    key: str, world: World, context: Context, printed: Run
) -> None:
    good = world.manifest()
    assert failed(handler(notices(key, good), context)) == []
    assert [row["message"] for row in printed().lines if row["level"] == "WARNING"] == [
        "foreign key"
    ]
    assert world.record().job == JOB


def test_a_key_comes_form_encoded_from_s3(world: World, context: Context) -> None:
    world.manifest()
    key = world.steps(0, obs(0))
    assert failed(handler(notices(key.replace("/", "%2F")), context)) == []
    assert world.progress()["steps"] == 1


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(golden("s3-test-event")),
        "not json",
        "[]",
        '"text"',
        "null",
        "",
        '{"Records": []}',
        '{"Records": [{"s3": {"object": {}}}]}',
        '{"Records": ["text"]}',
        '{"Records": 1}',
    ],
)
def test_what_is_no_notice_is_passed_over(body: str, world: World, context: Context) -> None:
    del world
    assert failed(handler(notices("x", body=body), context)) == []


def test_an_innocent_job_is_judged_beside_a_manifest_of_ten_thousand_workers(
    world: World, context: Context
) -> None:
    bad = world.put("jobs/bad/manifest.tw", with_workers(10_000).replace(JOB.encode(), b"bad"))
    keys = [world.manifest(), world.steps(0, obs(0, NAN))]
    assert failed(handler(notices(bad, *keys), context)) == []
    assert world.findings() == [("ExplodingTensor", 0)]


def test_each_job_has_its_share_of_the_time_and_the_last_has_what_is_left(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    class Pipeline:
        def ingest(self, job: str, *, keys: Iterable[str] = (), until: float) -> Ingested:
            del keys
            shares.append(until - now)
            return Ingested(job)

    now = 1_790_000_000.0
    monkeypatch.setattr("lambdas.evaluator.batch.time.time", lambda: now)
    monkeypatch.setattr(wiring, "pipeline", Pipeline)
    context.remaining_ms = 68_000
    handler(notices("jobs/a/manifest.tw", "jobs/b/manifest.tw", "jobs/c/manifest.tw"), context)
    assert shares == [20.0, 30.0, 60.0]


def test_jobs_for_which_no_time_is_left_go_back_and_they_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[str] = []

    class Pipeline:
        def ingest(self, job: str, *, keys: Iterable[str] = (), until: float) -> Ingested:
            del keys, until
            began.append(job)
            context.remaining_ms = 5_000
            return Ingested(job)

    monkeypatch.setattr(wiring, "pipeline", Pipeline)
    assert failed(handler(notices("jobs/a/manifest.tw", "jobs/b/manifest.tw"), context)) == ["m1"]
    assert began == ["a"]
