"""From S3's notice to the SMS, every function as Lambda calls it."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.announcer import handler as announcer
from lambdas.announcer.publisher import Publisher
from lambdas.evaluator import handler as evaluator
from lambdas.jobs import handler as jobs
from lambdas.notifier import handler as notifier
from lambdas.shared import wiring
from lambdas.stopper import handler as stopper
from tests.lambdas.conftest import Context, golden, notices, stream
from tests.unit.pipeline.world import JOB, NAN, World, obs, training_job
from trainwarden.model import Json
from trainwarden.store.ports import EntryKind


class Aws:
    """EventBridge and SNS of a deployment: what is put on the bus, what people get."""

    def __init__(self) -> None:
        self.events: list[dict[str, Json]] = []
        self.messages: list[dict[str, Any]] = []

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Json]:  # noqa: N803 (AWS)
        import json

        for entry in Entries:
            detail = json.loads(entry["Detail"])
            self.events.append(
                {"source": entry["Source"], "detail-type": entry["DetailType"], "detail": detail}
            )
        return {"FailedEntryCount": 0, "Entries": [{} for _ in Entries]}

    def publish(self, **message: Any) -> None:
        self.messages.append(message)


@pytest.mark.parametrize("tag", ["allow", None])
def test_a_faulty_job_is_judged_announced_and_stopped_only_if_it_allows_it(
    tag: str | None, world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = Aws()
    publisher = Publisher(aws, "trainwarden")  # type: ignore[arg-type]  # a fake
    monkeypatch.setattr(announcer, "publisher", lambda: publisher)
    monkeypatch.setattr(wiring, "topics", lambda: aws)
    monkeypatch.setenv("TOPIC_ARN", "arn:aws:sns:eu-central-1:123456789012:t")

    tags = {"trainwarden:rules": "default"} | ({"trainwarden:stop": tag} if tag else {})
    described = training_job()
    event = golden("sagemaker-state-change")
    event["detail"] |= {"TrainingJobName": JOB, "TrainingJobArn": described.arn, "Tags": tags}
    world.training.add(training_job(**({"stop": tag} if tag else {}), rules="default"))
    jobs.handler(event, context)
    keys = [world.sagemaker_manifest(), world.steps(0, obs(0), obs(1, NAN))]
    assert evaluator.handler(notices(*keys), context) == {"batchItemFailures": []}

    def announce() -> list[dict[str, Json]]:
        outbox = [entry.body["events"] for entry in world.entries(EntryKind.OUTBOX)]
        start = len(aws.events)
        assert announcer.handler(stream(*outbox), context) == {"batchItemFailures": []}
        return aws.events[start:]

    told = announce()
    assert [one["detail-type"] for one in told] == [
        "Job Opened",
        "Finding Recorded",
        "Verdict Changed",
    ]
    verdict = told[2]["detail"]["data"]
    assert verdict["stop_requested"] is (tag == "allow")
    for one in told:
        notifier.handler(one, context)
    (message,) = aws.messages
    assert message["Subject"] == f"ExplodingTensor in {JOB} since step 1"

    answer = stopper.handler(
        {"operation": "authorize", "job": JOB, "rule": verdict["rule"]}, context
    )
    assert answer["allowed"] is (tag == "allow")
    outcome = {"outcome": "stopped" if tag else "refused", "reason": answer["reason"]}
    record = {"operation": "record", "job": JOB, "rule": verdict["rule"], "result": outcome}
    stopper.handler(record, context)
    (action,) = announce()  # the records before are known: only the new one is sent
    assert action["detail"]["data"]["outcome"] == outcome["outcome"]


def test_a_set_of_rules_is_judged_told_once_and_stopped_like_a_rule(
    world: World, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = Aws()
    publisher = Publisher(aws, "trainwarden")  # type: ignore[arg-type]  # a fake
    monkeypatch.setattr(announcer, "publisher", lambda: publisher)
    monkeypatch.setattr(wiring, "topics", lambda: aws)
    monkeypatch.setenv("TOPIC_ARN", "arn:aws:sns:eu-central-1:123456789012:t")
    tags = {
        "trainwarden:rules": "none",
        "trainwarden:set:broken": "ExplodingTensor Overfit action=stop",
        "trainwarden:stop": "allow",
    }
    described = training_job()
    event = golden("sagemaker-state-change")
    event["detail"] |= {"TrainingJobName": JOB, "TrainingJobArn": described.arn, "Tags": tags}
    world.training.add(
        training_job(**{key.partition(":")[2]: value for key, value in tags.items()})
    )
    jobs.handler(event, context)
    keys = [world.sagemaker_manifest(), world.steps(0, obs(0), obs(1, NAN))]
    assert evaluator.handler(notices(*keys), context) == {"batchItemFailures": []}
    outbox = [entry.body["events"] for entry in world.entries(EntryKind.OUTBOX)]
    announcer.handler(stream(*outbox), context)
    for one in aws.events:
        notifier.handler(one, context)
    (message,) = aws.messages
    assert message["Subject"] == f"broken in {JOB} since step 1"
    asked = [
        one["detail"]["data"]["rule"]
        for one in aws.events
        if one["detail"]["data"].get("stop_requested")
    ]
    assert asked == ["broken"]
    answer = stopper.handler({"operation": "authorize", "job": JOB, "rule": "broken"}, context)
    assert answer["allowed"] is True
