"""Objects nobody should have put there: recorded, not retried for ever, nothing else lost."""

from __future__ import annotations

import pytest

from tests.deployed.conftest import Cloud, until
from tests.deployed.recording import Recording, judged
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed

FOREIGN = (
    "jobs/foreign/steps/0000/first.tw",
    "jobs/../foreign/manifest.tw",
    "jobs/foreign_underscore/manifest.tw",
    "jobs/foreign/steps/9/0000000000.tw",
    "jobs/sp ace+plus/manifest.tw",
)


def test_a_broken_object_is_recorded_and_the_steps_around_it_are_judged(
    cloud: Cloud, faulty: Recording
) -> None:
    objects = dict(faulty.objects("broken"))
    bad = sorted(key for key in objects if "/steps/" in key)[1]
    objects[bad] = objects[bad][:-100]
    for key, body in objects.items():
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
    cloud.closed("broken")
    incidents = cloud.entries("broken", EntryKind.INCIDENT)
    [incident] = incidents.values()
    assert incident.body["kind"] == "REJECTED"
    assert bad in str(incident.body)
    expected = judged(objects)
    assert cloud.entries("broken", EntryKind.FINDING).keys() == expected.keys() != set()
    [event] = until(lambda: cloud.told("broken", "Data Rejected"), "the rejection is told")
    assert event["detail"]["data"]["job"] == "broken"


def test_garbage_of_every_kind_is_recorded_without_a_retry_storm(cloud: Cloud) -> None:
    header = (2**40).to_bytes(8, "little")
    bodies = [b"", b"garbage", header + b"{}", b"\0" * 64, b'{"wire": 99}', b"\xff" * 1000]
    for number, body in enumerate(bodies):
        key = f"jobs/garbage/steps/0000/{number:010d}.tw"
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)
    cloud.s3.put_object(Bucket=cloud.bucket, Key="jobs/garbage/manifest.tw", Body=b"{]")
    until(
        lambda: cloud.ledger.load("garbage") and cloud.entries("garbage", EntryKind.INCIDENT),
        "the garbage is recorded",
    )
    cloud.drained()
    assert cloud.lost_notices() == 0


def test_foreign_keys_are_passed_over(cloud: Cloud) -> None:
    for key in FOREIGN:
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=b"x")
    cloud.drained()
    assert cloud.lost_notices() == 0
    known = {record.job for record in cloud.ledger.jobs()}
    assert not {job for job in known if "foreign" in job or "ace" in job}


def test_messages_that_are_no_notices_are_passed_over(cloud: Cloud) -> None:
    for body in ("not json", "[]", '{"Records": []}', '{"Event": "s3:TestEvent"}'):
        cloud.sqs.send_message(QueueUrl=cloud.notices, MessageBody=body)
    cloud.drained()
    assert cloud.lost_notices() == 0
