"""The notifier: who gets what through SNS, with filters and topics as they are deployed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from lambdas.notifier.handler import handler
from lambdas.notifier.publishing import publish
from lambdas.shared import wiring
from tests.events import samples
from tests.lambdas.conftest import Context
from trainwarden.messages import Message
from trainwarden.model import Json

SAMPLES = dict(samples.samples())
ML, OPS = "ml@example.com", "ops@example.com"
Readers = dict[str, Callable[[], list[dict[str, Json]]]]


def addressed(*notify: str, name: str = "verdict-overfit") -> dict[str, Json]:
    event = json.loads(json.dumps(SAMPLES[name]))
    event["detail"]["data"]["notify"] = list(notify)
    found: dict[str, Json] = event
    return found


@pytest.fixture
def readers(queue: Any, monkeypatch: pytest.MonkeyPatch) -> Readers:
    """Two subscribers of the topic, filtered as the stack does it, and one of a team's topic."""
    sns = boto3.client("sns")
    topic = sns.create_topic(Name="Trainwarden-Verdicts")["TopicArn"]
    team = sns.create_topic(Name="trainwarden-team")["TopicArn"]
    monkeypatch.setenv("TOPIC_ARN", topic)
    found: Readers = {}
    for name, arn in ((ML, topic), (OPS, topic), ("team", team)):
        queue_arn, found[name] = queue(name.partition("@")[0])
        policy = {} if name == "team" else {"FilterPolicy": json.dumps({"to": ["all", name]})}
        sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue_arn, Attributes=policy)
    return found


def heard(readers: Readers) -> dict[str, int]:
    return {name: len(read()) for name, read in readers.items()}


def test_without_addresses_everybody_is_told(readers: Readers, context: Context) -> None:
    assert handler(addressed(), context) == {"published": 1}
    assert heard(readers) == {ML: 1, OPS: 1, "team": 0}


def test_an_address_reaches_its_subscriber_only(readers: Readers, context: Context) -> None:
    assert handler(addressed(ML), context) == {"published": 1}
    assert heard(readers) == {ML: 1, OPS: 0, "team": 0}


def test_several_addresses_reach_each_once(readers: Readers, context: Context) -> None:
    assert handler(addressed(ML, OPS, "+4930123456"), context) == {"published": 1}
    assert heard(readers) == {ML: 1, OPS: 1, "team": 0}


def test_a_topic_is_told_instead_of_everybody(readers: Readers, context: Context) -> None:
    assert handler(addressed("trainwarden-team"), context) == {"published": 1}
    assert heard(readers) == {ML: 0, OPS: 0, "team": 1}


def test_a_topic_and_an_address_are_both_told(readers: Readers, context: Context) -> None:
    assert handler(addressed("trainwarden-team", OPS), context) == {"published": 2}
    assert heard(readers) == {ML: 0, OPS: 1, "team": 1}


def test_a_topic_that_does_not_exist_swallows_nothing(readers: Readers, context: Context) -> None:
    assert handler(addressed("trainwarden-gone"), context) == {"published": 1}
    assert heard(readers) == {ML: 1, OPS: 1, "team": 0}


def test_a_message_carries_its_subject_texts_and_attributes(
    readers: Readers, context: Context
) -> None:
    event = SAMPLES["verdict-vanishing-gradient"]
    handler(event, context)
    (message,) = readers[ML]()
    assert message["Subject"] == "VanishingGradient in resnet50-2026-11-30 since step 400"
    told = {name: attribute["Value"] for name, attribute in message["MessageAttributes"].items()}
    assert told == {
        "job": samples.JOB,
        "rule": "VanishingGradient",
        "severity": "error",
        "event_id": event["detail"]["metadata"]["event_id"],
        "to": json.dumps([ML]),
        "AWS.SNS.SMS.SMSType": "Transactional",
    }


def test_each_channel_has_a_text_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    calls: list[dict[str, Any]] = []

    class Topics:
        def publish(self, **call: Any) -> None:
            calls.append(call)

    detail = SAMPLES["data-lost"]["detail"]
    publish(Topics(), "arn:aws:sns:x:1:t", Message("s", "long", "short"), detail)  # type: ignore[arg-type]  # a fake
    (call,) = calls
    assert call["MessageStructure"] == "json"
    assert json.loads(call["Message"]) == {"default": "long", "email": "long", "sms": "short"}
    assert "rule" not in call["MessageAttributes"]


@pytest.mark.parametrize(
    "name",
    [
        "verdict-muted",
        "verdict-no-issues",
        "verdict-symptom",
        "job-opened",
        "job-closed",
        "data-rejected",
    ],
)
def test_what_is_nobodys_business_is_not_published(
    name: str, readers: Readers, context: Context
) -> None:
    assert handler(SAMPLES[name], context) == {"published": 0}
    assert heard(readers) == {ML: 0, OPS: 0, "team": 0}


def test_a_failure_of_sns_fails_the_invocation_so_that_it_is_tried_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Topics:
        def publish(self, **call: Any) -> None:
            del call
            raise ClientError({"Error": {"Code": "Throttled", "Message": "slow"}}, "Publish")

    monkeypatch.setattr(wiring, "topics", Topics)
    monkeypatch.setenv("TOPIC_ARN", "arn:aws:sns:eu-central-1:123456789012:t")
    for event in (addressed(ML), addressed("trainwarden-team")):
        with pytest.raises(ClientError):
            handler(event, context)
