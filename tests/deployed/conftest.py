"""One embedded AWS with the deployed stack for the whole suite; jobs run side by side."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.deployed.recording import Recording, record
from trainwarden.embedded import deploy, jobs, launcher, outbox
from trainwarden.embedded.launcher import Options, Server
from trainwarden.model import Json, Status, Verdict
from trainwarden.pipeline import verdicts
from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
EMAIL, PHONE = "ada@example.org", "+4915112345678"
CONTEXT = {
    "emails": EMAIL,
    "sms": PHONE,
    "retain": "false",
    "archive_days": "1",
    "custom_rules": str(Path(__file__).parent / "custom_rules"),
}
DEADLINE_S = 120.0  # for what takes seconds on an idle machine
SWEEP_EVERY = 20  # looks, a fifth of a second each
T = TypeVar("T")


def until(condition: Callable[[], T], what: str) -> T:
    """Ask again and again until the answer is true; fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.2)
    pytest.fail(f"not within {DEADLINE_S:g} s: {what}")


@dataclass
class Cloud:
    """The embedded AWS with Trainwarden deployed on it.

    Attributes:
        server: The embedded AWS.
        outputs: Outputs of the stack.
        events: Every event of our bus so far, as EventBridge delivered it.
    """

    server: Server
    outputs: Mapping[str, str]
    events_queue: str
    events: list[dict[str, Json]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.s3 = self.server.client("s3")
        self.sqs = self.server.client("sqs")
        self.functions = self.server.client("lambda")
        self.bucket = self.outputs["BucketName"]
        self.ledger = DynamoLedger(self.outputs["TableName"], self.server.client("dynamodb"))
        found = self.sqs.list_queues(QueueNamePrefix="Trainwarden-Inbox")["QueueUrls"]
        self.notices = next(url for url in found if "DeadLetters" not in url)
        self.dead_letters = next(url for url in found if "DeadLetters" in url)

    def submit(self, script: str, name: str, *, epochs: int | None = None, **tags: str) -> str:
        """Start an example as a training job; ``stop="allow"`` is a tag of ours."""
        return jobs.submit(
            self.server,
            jobs.Submission(
                EXAMPLES / script,
                name=name,
                tags={f"trainwarden:{key}": value for key, value in tags.items()},
                hyperparameters={} if epochs is None else {"epochs": str(epochs)},
            ),
        )

    def describe(self, job: str) -> Mapping[str, Any]:
        """What SageMaker says of a job."""
        return jobs.describe(self.server, job)

    def ended(self, job: str) -> Mapping[str, Any]:
        """Wait for a job's end and return SageMaker's description."""

        def look() -> Mapping[str, Any] | None:
            found = self.describe(job)
            return found if found["TrainingJobStatus"] in jobs.ENDED else None

        found = until(look, f"{job} has ended")
        assert found is not None
        return found

    def record(self, job: str) -> JobRecord:
        """Return the ledger's record of a job."""
        found = self.ledger.load(job)
        assert found is not None, f"the ledger knows no job {job}"
        return found

    def closed(self, job: str) -> JobRecord:
        """Wait until the ledger has closed a job; the sweeper comes more often than it does."""
        looks = itertools.count(1)

        def look() -> bool:
            found = self.ledger.load(job)
            if found is not None and found.status is JobStatus.CLOSED:
                return True
            if next(looks) % SWEEP_EVERY == 0:
                self.sweep()
            return False

        until(look, f"{job} is closed")
        return self.record(job)

    def verdicts(self, job: str) -> dict[str, Verdict]:
        """Return where each rule stands."""
        return {verdict.rule: verdict for verdict in verdicts(self.record(job))}

    def found_issues(self, job: str, rule: str) -> Verdict:
        """Wait for a rule to find issues in a job."""

        def look() -> bool:
            known = self.ledger.load(job) is not None
            found = self.verdicts(job).get(rule) if known else None
            return found is not None and found.status is Status.ISSUES_FOUND

        until(look, f"{rule} finds issues in {job}")
        return self.verdicts(job)[rule]

    def entries(self, job: str, kind: EntryKind) -> dict[str, Entry]:
        """Return a job's entries of one kind by id."""
        return {entry.id: entry for entry in self.ledger.entries(job, kind)}

    def messages(self, job: str, protocol: str = "email") -> list[dict[str, Json]]:
        """Return what was sent about a job."""
        return [
            message
            for message in outbox.messages(self.server.state)
            if message["protocol"] == protocol and message["attributes"].get("job") == job
        ]

    def told(self, job: str, detail_type: str | None = None) -> list[dict[str, Json]]:
        """Return the events about a job that our bus has carried so far."""
        while True:
            answer = self.sqs.receive_message(QueueUrl=self.events_queue, MaxNumberOfMessages=10)
            received = answer.get("Messages", [])
            for message in received:
                self.events.append(json.loads(message["Body"]))
                self.sqs.delete_message(
                    QueueUrl=self.events_queue, ReceiptHandle=message["ReceiptHandle"]
                )
            if not received:
                break
        return [
            event
            for event in self.events
            if event["detail"]["metadata"]["job"] == job
            and detail_type in (None, event["detail-type"])
        ]

    def drained(self) -> None:
        """Wait until no notice waits or is being worked on."""

        def empty() -> bool:
            names = [
                "ApproximateNumberOfMessages",
                "ApproximateNumberOfMessagesNotVisible",
            ]
            found = self.sqs.get_queue_attributes(QueueUrl=self.notices, AttributeNames=names)
            return not any(int(count) for count in found["Attributes"].values())

        until(empty, "the queue of notices is empty")

    def lost_notices(self) -> int:
        """Return how many notices were given up."""
        name = "ApproximateNumberOfMessages"
        found = self.sqs.get_queue_attributes(QueueUrl=self.dead_letters, AttributeNames=[name])
        return int(found["Attributes"][name])

    def function(self, name: str) -> str:
        """Return the full name of one of our functions."""
        pages = self.functions.get_paginator("list_functions").paginate()
        names = [f["FunctionName"] for page in pages for f in page["Functions"]]
        return next(str(full) for full in names if full.startswith(f"Trainwarden-{name}"))

    def sweep(self) -> None:
        """Do what happens once a minute."""
        answer = self.functions.invoke(FunctionName=self.function("Sweeper"), Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()


def _listen(server: Server, bus: str) -> str:
    """Subscribe a queue to everything on our bus and return its URL."""
    sqs, events = server.client("sqs"), server.client("events")
    url: str = sqs.create_queue(QueueName="heard")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    pattern = json.dumps({"source": ["trainwarden"]})
    events.put_rule(Name="heard", EventBusName=bus, EventPattern=pattern)
    target = {"Id": "heard", "Arn": arn["QueueArn"]}
    events.put_targets(Rule="heard", EventBusName=bus, Targets=[target])
    return url


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deployed")


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    yield launcher.up(folder, Options(stop_grace_s=5))
    launcher.down(folder)


@pytest.fixture(scope="session")
def deployment(server: Server) -> deploy.Deployment:
    return deploy.Deployment(server, ROOT, CONTEXT)


@pytest.fixture(scope="session")
def cloud(server: Server, deployment: deploy.Deployment) -> Cloud:
    outputs = deployment.deploy()
    return Cloud(server, outputs, _listen(server, outputs["BusName"]))


@pytest.fixture(scope="session")
def started(cloud: Cloud) -> Cloud:
    """Three jobs side by side: marked and faulty, healthy, faulty but not marked."""
    cloud.submit("train_faulty.py", "faulty", stop="allow", rules="default")
    cloud.submit("train_healthy.py", "healthy", stop="allow", rules="default")
    # Trains until a test ends it: however late that test looks, nothing else has.
    cloud.submit("train_faulty.py", "unmarked", epochs=10_000_000, rules="default")
    return cloud


@pytest.fixture(scope="session")
def faulty(started: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A recorded run with vanishing gradients."""
    del started  # the jobs run meanwhile
    return record(tmp_path_factory.mktemp("recorded"), EXAMPLES / "train_faulty.py", epochs=6)
