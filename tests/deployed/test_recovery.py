"""Evaluators die, the table throttles, notices come again: no finding is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deployed.conftest import Cloud, until
from tests.deployed.recording import Recording, judged
from trainwarden.model import Json
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed

REDELIVERY_S = "4"  # a notice whose evaluator died comes again after that
KILLED_AFTER_S = (0.0, 0.02, 0.1)


@pytest.fixture(scope="module", autouse=True)
def unnoticed(cloud: Cloud, faulty: Recording) -> dict[str, bytes]:
    """A run of whose objects only the first is noticed; it must be silent for a while."""
    objects = dict(faulty.objects("unnoticed"))
    bucket = {"Bucket": cloud.bucket}
    configuration = cloud.s3.get_bucket_notification_configuration(**bucket)
    configuration.pop("ResponseMetadata")
    first, *others = objects.items()
    cloud.s3.put_object(**bucket, Key=first[0], Body=first[1])
    until(lambda: cloud.ledger.load("unnoticed"), "the job is known")
    put = cloud.s3.put_bucket_notification_configuration
    put(**bucket, NotificationConfiguration={})
    try:
        for key, body in others:
            cloud.s3.put_object(**bucket, Key=key, Body=body)
    finally:
        put(**bucket, NotificationConfiguration=configuration)
    return objects


@pytest.fixture
def impatient(cloud: Cloud) -> Iterator[Cloud]:
    """The queue of notices does not wait three minutes before it delivers again."""

    def set_timeout(seconds: str) -> None:
        attributes = {"VisibilityTimeout": seconds}
        cloud.sqs.set_queue_attributes(QueueUrl=cloud.notices, Attributes=attributes)

    set_timeout(REDELIVERY_S)
    yield cloud
    set_timeout("180")


def assert_exactly_once(cloud: Cloud, job: str, objects: dict[str, bytes]) -> None:
    """The ledger holds what the in-order fold finds; each finding was told under one id."""
    expected = judged(objects)
    found = cloud.entries(job, EntryKind.FINDING)
    assert found.keys() == expected.keys() != set()
    assert [f.body["message"] for f in found.values()] == [
        f.body["message"] for f in expected.values()
    ]
    assert cloud.entries(job, EntryKind.INCIDENT) == {}
    until(
        lambda: len(cloud.told(job, "Finding Recorded")) >= len(found),
        f"all findings of {job} are told",
    )
    told = cloud.told(job, "Finding Recorded")
    ids = {event["detail"]["metadata"]["event_id"] for event in told}
    assert len(ids) == len(found)


def workers(cloud: Cloud, function: str) -> list[int]:
    """Return the processes of a function; the name is in their command line."""
    command = ["ps", "-Aww", "-o", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines():
        pid, parent, words = line.split(None, 2)
        if int(parent) == cloud.server.pid and f"ministack-lambda-{function}-" in words:
            found.append(int(pid))
    return found


def in_flight(cloud: Cloud) -> int:
    """Return how many notices are being worked on."""
    name = "ApproximateNumberOfMessagesNotVisible"
    found = cloud.sqs.get_queue_attributes(QueueUrl=cloud.notices, AttributeNames=[name])
    return int(found["Attributes"][name])


def test_evaluators_killed_mid_batch_lose_and_double_nothing(
    impatient: Cloud, faulty: Recording
) -> None:
    cloud, job = impatient, "killed"
    function = cloud.function("Evaluator")
    objects = dict(faulty.objects(job))
    rest = iter(objects.items())
    for delay in KILLED_AFTER_S:
        cloud.sqs.send_message(QueueUrl=cloud.notices, MessageBody="{}")  # there is a worker now
        cloud.drained()
        # Frozen, it takes the notice without a word; awake again, it is killed while it works.
        frozen = workers(cloud, function)
        assert frozen
        signal_all(frozen, signal.SIGSTOP)
        key, body = next(rest)
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
        until(lambda: in_flight(cloud), "the notice is with an evaluator")
        signal_all(frozen, signal.SIGCONT)
        time.sleep(delay)
        signal_all(frozen, signal.SIGKILL)
    for key, body in rest:
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
    cloud.closed(job)
    assert_exactly_once(cloud, job, objects)
    cloud.drained()
    assert cloud.lost_notices() == 0


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


@contextmanager
def throttled(cloud: Cloud, rules: list[dict[str, Json]]) -> Iterator[str]:
    """Put microburst between the evaluator and the table, and yield its control URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    proxy = subprocess.Popen(
        [
            *(sys.executable, "-m", "microburst", "--host", "127.0.0.1", "--port", str(port)),
            *("--upstream", cloud.server.endpoint),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    function = cloud.function("Evaluator")
    found = cloud.functions.get_function_configuration(FunctionName=function)
    variables = found["Environment"]["Variables"]

    def configure(extra: dict[str, str]) -> None:
        cloud.functions.update_function_configuration(
            FunctionName=function, Environment={"Variables": {**variables, **extra}}
        )

    try:
        until(lambda: answers(url), "microburst answers")
        request(url, "rules", json.dumps(rules))
        configure({"AWS_ENDPOINT_URL_DYNAMODB": url})
        yield url
    finally:
        configure({})
        proxy.terminate()
        proxy.wait()


def request(url: str, path: str, body: str | None = None) -> Json:
    data = None if body is None else body.encode()
    asked = urllib.request.Request(f"{url}/_microburst/{path}", data)  # noqa: S310 - our own proxy
    with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - our own proxy
        return json.loads(answer.read())


def answers(url: str) -> bool:
    try:
        request(url, "health")
    except OSError:
        return False
    return True


def test_a_throttled_table_loses_and_doubles_nothing(impatient: Cloud, faulty: Recording) -> None:
    cloud, job = impatient, "throttled"
    code = {"code": "ProvisionedThroughputExceededException"}
    objects = dict(faulty.objects(job))
    # More failures in a row than the SDK's retries can hide.
    rules: list[dict[str, Json]] = [
        {"service": "dynamodb", "sequence": {"fail": 12, "pass": 2}, "times": 48, "error": code}
    ]
    with throttled(cloud, rules) as proxy:
        for key, body in objects.items():
            cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
        cloud.closed(job)
        fired = request(proxy, "fired?limit=1000")
    assert len(fired) >= 12
    assert_exactly_once(cloud, job, objects)
    cloud.drained()
    assert cloud.lost_notices() == 0


def test_notices_that_come_again_change_nothing(cloud: Cloud, faulty: Recording) -> None:
    job = "replayed"
    objects = dict(faulty.objects(job))
    for key, body in sorted(objects.items(), reverse=True):  # and in the wrong order
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
    cloud.closed(job)
    assert_exactly_once(cloud, job, objects)
    cloud.drained()
    before = snapshot(cloud, job)
    for _ in range(2):
        for key in objects:
            cloud.sqs.send_message(QueueUrl=cloud.notices, MessageBody=notice(cloud.bucket, key))
    cloud.drained()
    assert snapshot(cloud, job) == before
    assert cloud.lost_notices() == 0


def snapshot(cloud: Cloud, job: str) -> Json:
    kinds = (EntryKind.FINDING, EntryKind.INCIDENT, EntryKind.ACTION)
    told = Counter(event["detail"]["metadata"]["event_id"] for event in cloud.told(job))
    mails = [message["message_id"] for message in cloud.messages(job)]
    return [cloud.record(job).version, [cloud.entries(job, k) for k in kinds], told, mails]


def notice(bucket: str, key: str) -> str:
    """Return the message that S3 sends about a created object."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-01-01T00:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}},
    }
    return json.dumps({"Records": [record]})


def test_notices_that_never_come_are_made_up_for_by_the_sweeper(
    cloud: Cloud, unnoticed: dict[str, bytes]
) -> None:
    cloud.closed("unnoticed")
    assert_exactly_once(cloud, "unnoticed", unnoticed)
