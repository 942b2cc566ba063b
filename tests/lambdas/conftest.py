"""The handlers as Lambda calls them, over a pipeline in memory and AWS clients of moto."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.unit.pipeline.world import World
from trainwarden.model import Json

# Powertools reads these when it is imported.
os.environ.setdefault("POWERTOOLS_SERVICE_NAME", "tests")
os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "Trainwarden")

EVENTS = Path(__file__).parents[1] / "events"
REGION = "eu-central-1"


@dataclass
class Context:
    """What Lambda passes beside the event."""

    function_name: str = "trainwarden-test"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:123456789012:function:trainwarden-test"
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    remaining_ms: int = 30_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@dataclass
class Printed:
    """What a function wrote to its log: metrics in EMF, and log lines."""

    metrics: dict[str, list[float]] = field(default_factory=dict)
    dimensions: set[str] = field(default_factory=set)
    lines: list[dict[str, Json]] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _no_session_of_another_test() -> None:
    from lambdas.shared import wiring

    wiring._session.cache_clear()  # it keeps credentials and region


@pytest.fixture
def context() -> Context:
    return Context()


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Printed]:
    """Return what was printed since the last call."""
    from lambdas.shared.obs import logger

    # The logger holds on to the standard output there was when it was made.
    log = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", log)

    def read() -> Printed:
        found = Printed(lines=[json.loads(row) for row in log.getvalue().splitlines()])
        log.truncate(0)
        log.seek(0)
        for row in capsys.readouterr().out.splitlines():
            body = json.loads(row)
            (told,) = body["_aws"]["CloudWatchMetrics"]
            assert told["Namespace"] == "Trainwarden"
            found.dimensions |= {name for names in told["Dimensions"] for name in names}
            for metric in told["Metrics"]:
                found.metrics.setdefault(metric["Name"], []).extend(body[metric["Name"]])
        return found

    return read


def golden(name: str) -> Any:
    """Read an AWS event as AWS sends it."""
    return json.loads((EVENTS / f"{name}.json").read_text())


def notices(*keys: str, body: str | None = None) -> dict[str, Any]:
    """Return one SQS message for each key, as S3 fills the queue."""
    event: dict[str, Any] = golden("s3-notices")
    (template,) = event["Records"]
    event["Records"] = []
    for position, key in enumerate(keys):
        notice = json.loads(template["body"])
        notice["Records"][0]["s3"]["object"]["key"] = key
        text = json.dumps(notice) if body is None else body
        event["Records"].append({**template, "messageId": f"m{position}", "body": text})
    return event


def stream(*outboxes: Sequence[dict[str, Json]]) -> dict[str, Any]:
    """Return one stream record for each outbox entry, as the table's stream has them."""
    from trainwarden.store import records

    event: dict[str, Any] = golden("dynamodb-stream")
    (template,) = event["Records"]
    event["Records"] = []
    for position, events in enumerate(outboxes):
        record = json.loads(json.dumps(template))
        record["eventID"] = f"e{position}"
        record["dynamodb"]["SequenceNumber"] = str(111 + position)
        record["dynamodb"]["NewImage"]["outbox"]["S"] = records.dumps(list(events))
        event["Records"].append(record)
    return event


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Wire the handlers to a pipeline in memory."""
    from lambdas.shared import wiring

    world = World()
    pipeline = world.pipeline(asks_sagemaker=True)
    monkeypatch.setattr(wiring, "pipeline", lambda: pipeline)
    monkeypatch.setattr(wiring, "ledger", lambda: world.ledger)
    monkeypatch.setattr(wiring, "training_jobs", lambda: world.training)
    return world


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mock AWS; the handlers' own clients talk to it."""
    from lambdas.announcer import handler
    from lambdas.shared import wiring

    cached = (wiring.pipeline, wiring.ledger, wiring.training_jobs, wiring.bus, wiring.topics)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        for function in (*cached, handler.publisher):
            getattr(function, "cache_clear", lambda: None)()
        yield
    for function in (*cached, handler.publisher):
        getattr(function, "cache_clear", lambda: None)()


@pytest.fixture
def queue(aws: None) -> Callable[[str], tuple[str, Callable[[], list[dict[str, Json]]]]]:
    """Make queues: give a name, get the ARN and a reader of what is sent there."""
    del aws

    def make(name: str) -> tuple[str, Callable[[], list[dict[str, Json]]]]:
        sqs = boto3.client("sqs")
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]

        def read() -> list[dict[str, Json]]:
            found = []
            while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get(
                "Messages"
            ):
                for message in messages:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                    found.append(json.loads(message["Body"]))
            return found

        return arn["QueueArn"], read

    return make
