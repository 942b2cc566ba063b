"""The announcer: outbox entries of the stream → events; failures are tried again, never dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from lambdas.announcer import handler as announcer
from lambdas.announcer.publisher import ATTEMPTS, BYTES, ENTRIES, Publisher, chunks
from lambdas.shared import wiring
from tests.events import samples
from tests.lambdas.conftest import Context, Printed, stream
from trainwarden.errors import RetryableError
from trainwarden.model import Json

SAMPLES = dict(samples.samples())
OPENED, FOUND = SAMPLES["job-opened"], SAMPLES["verdict-exploding-tensor"]


class Bus:
    """EventBridge that refuses what it is told to, once for each entry in ``refuse``."""

    def __init__(self, *refuse: Sequence[int] | str) -> None:
        self.refuse, self.calls = list(refuse), list[list[dict[str, str]]]()

    def put_events(self, *, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803 (AWS)
        self.calls.append(Entries)
        plan = self.refuse.pop(0) if self.refuse else ()
        if isinstance(plan, str):
            raise ClientError({"Error": {"Code": plan, "Message": plan}}, "PutEvents")
        answers = [
            {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
            if position in plan
            else {"EventId": f"id{position}"}
            for position in range(len(Entries))
        ]
        return {"FailedEntryCount": len(plan), "Entries": answers}

    def sent(self) -> list[list[str]]:
        """``event_id`` of every entry of every call."""
        return [
            [json.loads(entry["Detail"])["metadata"]["event_id"] for entry in call]
            for call in self.calls
        ]


def ids(*events: dict[str, Json]) -> list[str]:
    return [event["detail"]["metadata"]["event_id"] for event in events]


def publisher(bus: Bus) -> Publisher:
    return Publisher(bus, "trainwarden", pause=lambda _: None)  # type: ignore[arg-type]  # a fake


def numbered(count: int, size: int = 100) -> list[dict[str, Json]]:
    return [
        {
            "source": "trainwarden",
            "detail-type": "Job Opened",
            "detail": {"metadata": {"event_id": str(number)}, "data": "x" * size},
        }
        for number in range(count)
    ]


def test_only_what_was_refused_is_sent_again() -> None:
    bus = Bus([1], [0])
    publisher(bus).publish("r", [OPENED, FOUND])
    assert bus.sent() == [ids(OPENED, FOUND), ids(FOUND), ids(FOUND)]


def test_what_is_refused_again_and_again_makes_the_record_come_back() -> None:
    bus = Bus(*[[0]] * ATTEMPTS)
    with pytest.raises(RetryableError, match="1 of 2 events were not taken: ThrottlingException"):
        publisher(bus).publish("r", [OPENED, FOUND])
    assert len(bus.calls) == ATTEMPTS


def test_when_the_record_comes_back_what_went_is_not_sent_again() -> None:
    bus = Bus(*[[0]] * ATTEMPTS)
    one = publisher(bus)
    with pytest.raises(RetryableError):
        one.publish("r", [OPENED, FOUND])
    bus.calls.clear()
    one.publish("r", [OPENED, FOUND])
    assert bus.sent() == [ids(OPENED)]


def test_the_same_event_in_another_record_is_sent() -> None:
    bus = Bus()
    one = publisher(bus)
    one.publish("r1", [OPENED])
    one.publish("r2", [OPENED])
    assert bus.sent() == [ids(OPENED), ids(OPENED)]


def test_a_call_that_fails_as_a_whole_is_made_again() -> None:
    bus = Bus("InternalException", ())
    publisher(bus).publish("r", [OPENED, FOUND])
    assert bus.sent() == [ids(OPENED, FOUND)] * 2


@pytest.mark.parametrize(("count", "size"), [(1, 10), (10, 10), (11, 10), (25, 10), (12, 60_000)])
def test_calls_stay_within_eventbridges_limits(count: int, size: int) -> None:
    bus = Bus()
    publisher(bus).publish("r", numbered(count, size))
    assert [n for call in bus.sent() for n in call] == [str(number) for number in range(count)]
    for call in bus.calls:
        assert len(call) <= ENTRIES
        assert sum(len(entry["Detail"]) for entry in call) <= BYTES
    assert list(chunks([])) == []


def test_records_are_sent_in_order_and_a_failed_one_goes_back_alone(
    context: Context, monkeypatch: pytest.MonkeyPatch, printed: Callable[[], Printed]
) -> None:
    bus = Bus((), *[[0]] * ATTEMPTS)
    one = publisher(bus)
    monkeypatch.setattr(announcer, "publisher", lambda: one)
    answer = announcer.handler(stream([OPENED], [FOUND], [OPENED]), context)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "112"}]}
    warnings = [row for row in printed().lines if row["level"] == "WARNING"]
    assert warnings[-1]["reason"].startswith("1 of 1 events were not taken")


def test_an_outbox_that_cannot_be_read_goes_back_and_is_logged(
    context: Context, monkeypatch: pytest.MonkeyPatch, printed: Callable[[], Printed]
) -> None:
    one = publisher(Bus())
    monkeypatch.setattr(announcer, "publisher", lambda: one)
    event = stream([OPENED], [FOUND])
    event["Records"][0]["dynamodb"]["NewImage"]["outbox"]["S"] = "{"
    assert announcer.handler(event, context) == {"batchItemFailures": [{"itemIdentifier": "111"}]}
    assert any(row["level"] == "ERROR" for row in printed().lines)


def test_a_record_without_events_is_passed_over(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Bus()
    one = publisher(bus)
    monkeypatch.setattr(announcer, "publisher", lambda: one)
    event = stream([OPENED], [OPENED])
    del event["Records"][0]["dynamodb"]["NewImage"]["outbox"]
    del event["Records"][1]["dynamodb"]["NewImage"]
    assert announcer.handler(event, context) == {"batchItemFailures": []}
    assert bus.calls == []


def test_the_call_is_one_that_eventbridge_understands(
    aws: None, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws
    monkeypatch.setenv("BUS_NAME", "trainwarden")
    answers = {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}, {"EventId": "2"}]}
    entries = [
        {
            "EventBusName": "trainwarden",
            "Source": "trainwarden",
            "DetailType": event["detail-type"],
            "Detail": json.dumps(event["detail"], ensure_ascii=False),
        }
        for event in (OPENED, FOUND)
    ]
    with Stubber(wiring.bus()) as stubber:  # checks the call against the service's own model
        stubber.add_response("put_events", answers, {"Entries": entries})
        assert announcer.handler(stream([OPENED, FOUND]), context) == {"batchItemFailures": []}
        stubber.assert_no_pending_responses()
