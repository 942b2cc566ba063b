"""The real handlers under AWS's own runtime client, from the files that are deployed and no other.

Their backend is the embedded AWS. What is not Lambda's here: limits on memory and time, and the
network between function and services.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import botocore
import pytest

from infra import packing
from tests.contract.conftest import make_bucket, make_table
from tests.events import samples
from tests.lambdas.conftest import notices, stream
from tests.lambdas.runtime_api import Answer, Function
from tests.unit.pipeline.world import JOB, LAYOUT, NAN, START, obs, steps_object
from trainwarden.embedded import launcher
from trainwarden.embedded.launcher import Server
from trainwarden.model import Json
from trainwarden.pipeline import verdicts
from trainwarden.store.dynamo import DynamoLedger
from trainwarden.wire.keys import ManifestKey, StepsKey
from trainwarden.wire.manifest import Manifest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("awslambdaric") is None,
    reason="awslambdaric, AWS's runtime client, is made for Linux alone",
)

FUNCTIONS = ("evaluator", "announcer", "jobs", "sweeper", "notifier", "stopper", "emptier")
SITE_PACKAGES = Path(botocore.__file__).parents[1]
BUS = "trainwarden"
DONE: Json = {"batchItemFailures": []}
SAMPLES = dict(samples.samples())
Start = Callable[[str], Function]
Client = Any  # a boto3 client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("embedded")
    yield launcher.up(folder)
    launcher.down(folder)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the stack packs: each function's code, the core layer, and the SDK without ballast."""
    folder = tmp_path_factory.mktemp("deployed")
    for package in FUNCTIONS:
        packing.copy(packing.function(package), packing.ROOT, folder / package)
    packing.copy(packing.core(), packing.PACKAGE.parent, folder / "core")
    shutil.copytree(SITE_PACKAGES / "botocore", folder / "deps" / "botocore")
    packing.slim_sdk(folder / "deps" / "botocore")
    return folder


@pytest.fixture(scope="module")
def environment(server: Server) -> dict[str, str]:
    """The variables that a stack gives to its functions, and the AWS that they lead to."""
    server.client("events").create_event_bus(Name=BUS)
    return {
        **server.environment(),
        "BUCKET_NAME": make_bucket(server.client("s3")),
        "TABLE_NAME": make_table(server.client("dynamodb")),
        "BUS_NAME": BUS,
        "TOPIC_ARN": server.client("sns").create_topic(Name="Verdicts")["TopicArn"],
        "POWERTOOLS_SERVICE_NAME": "tests",
        "POWERTOOLS_METRICS_NAMESPACE": "Trainwarden",
    }


@pytest.fixture
def start(deployed: Path, environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    started: list[Function] = []

    def start(package: str) -> Function:
        path = [deployed / package, deployed / "core", deployed / "deps", SITE_PACKAGES]
        handler = f"lambdas.{package}.handler.handler"
        started.append(Function(handler, path, environment, tmp_path / f"{package}.log"))
        return started[-1]

    yield start
    for function in started:
        function.close()


@pytest.fixture
def ledger(server: Server, environment: dict[str, str]) -> DynamoLedger:
    return DynamoLedger(environment["TABLE_NAME"], server.client("dynamodb"))


@pytest.fixture
def put(server: Server, environment: dict[str, str]) -> Callable[[str, bytes], str]:
    """Write an object; return its key."""
    s3 = server.client("s3")

    def put(key: str, body: bytes) -> str:
        s3.put_object(Bucket=environment["BUCKET_NAME"], Key=key, Body=body)
        return key

    return put


def subscribe(server: Server, name: str) -> tuple[str, Callable[[], list[dict[str, Json]]]]:
    """Make a queue; return its ARN, and a reader that waits for what is sent there."""
    sqs: Client = server.client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    wanted = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
    arn: str = sqs.get_queue_attributes(**wanted)["Attributes"]["QueueArn"]

    def read() -> list[dict[str, Json]]:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=10)
        for message in answer.get("Messages", ()):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in answer.get("Messages", ())]

    return arn, read


def test_the_evaluator_judges_a_job_when_it_starts_and_while_it_is_warm(
    start: Start, ledger: DynamoLedger, put: Callable[[str, bytes], str]
) -> None:
    evaluator = start("evaluator")
    manifest = Manifest(JOB, "run-1", layout=LAYOUT, created=START)
    keys = [
        put(str(ManifestKey(JOB)), manifest.to_bytes()),
        put(str(StepsKey(JOB, 0, 0)), steps_object(0, [obs(0)])),
    ]
    assert evaluator.invoke(notices(*keys)) == Answer("response", DONE)
    record = ledger.load(JOB)
    assert record is not None
    assert not [verdict for verdict in verdicts(record) if verdict.findings]

    ill = put(str(StepsKey(JOB, 0, 1)), steps_object(1, [obs(1, NAN)]))
    for _ in range(2):  # the second is a duplicate
        assert evaluator.invoke(notices(ill)) == Answer("response", DONE)
    record = ledger.load(JOB)
    assert record is not None
    found = {v.rule: v.since_step for v in verdicts(record) if v.findings}
    assert found == {"ExplodingTensor": 1}
    assert evaluator.is_running


def test_of_a_batch_only_the_message_that_cannot_be_handled_goes_back(
    start: Start, server: Server, environment: dict[str, str], ledger: DynamoLedger, put: Any
) -> None:
    damaged = {
        "pk": {"S": "JOB#damaged"},
        "sk": {"S": "HEAD"},
        "version": {"N": "1"},
        "record": {"B": b"not zlib"},
    }
    server.client("dynamodb").put_item(TableName=environment["TABLE_NAME"], Item=damaged)
    sound = put(
        str(ManifestKey("sound")),
        Manifest("sound", "run-1", layout=LAYOUT, created=START).to_bytes(),
    )
    evaluator = start("evaluator")
    answer = evaluator.invoke(notices(str(ManifestKey("damaged")), sound))
    assert answer == Answer("response", {"batchItemFailures": [{"itemIdentifier": "m0"}]})
    assert ledger.load("sound") is not None
    assert "JOB#damaged" in evaluator.log.read_text()


def test_a_message_of_another_shape_harms_no_other(
    start: Start, ledger: DynamoLedger, put: Any
) -> None:
    manifest = Manifest("shape", "run-1", layout=LAYOUT, created=START).to_bytes()
    event = notices("unused", put(str(ManifestKey("shape")), manifest))
    event["Records"][0]["body"] = json.dumps({"Records": [{"s3": {"object": {}}}]})
    assert start("evaluator").invoke(event) == Answer("response", DONE)
    assert ledger.load("shape") is not None


def test_the_announcer_puts_events_on_the_bus_and_sends_back_what_it_cannot_read(
    start: Start, server: Server
) -> None:
    queue, read = subscribe(server, "announced")
    events: Client = server.client("events")
    pattern = json.dumps({"source": ["trainwarden"]})
    events.put_rule(Name="all", EventBusName=BUS, EventPattern=pattern)
    events.put_targets(Rule="all", EventBusName=BUS, Targets=[{"Id": "queue", "Arn": queue}])
    announcer = start("announcer")
    for name in ("job-opened", "verdict-overfit"):
        sent, batch = SAMPLES[name], stream([SAMPLES[name]])
        batch["Records"][0]["eventID"] = name  # what it sent before it knows by the record's id
        assert announcer.invoke(batch) == Answer("response", DONE)
        (received,) = read()
        assert received["detail"] == sent["detail"]
        assert received["detail-type"] == sent["detail-type"]

    batch = stream([], [])
    batch["Records"][0]["dynamodb"]["NewImage"]["outbox"]["S"] = "{"
    failed = {"batchItemFailures": [{"itemIdentifier": "111"}]}
    assert announcer.invoke(batch) == Answer("response", failed)


def test_the_notifier_tells_people_and_reports_an_event_that_is_none(
    start: Start, server: Server, environment: dict[str, str]
) -> None:
    queue, read = subscribe(server, "notified")
    sns: Client = server.client("sns")
    sns.subscribe(TopicArn=environment["TOPIC_ARN"], Protocol="sqs", Endpoint=queue)
    notifier = start("notifier")
    for name in ("verdict-overfit", "verdict-dead-relu"):
        assert notifier.invoke(SAMPLES[name]) == Answer("response", {"published": 1})
        (message,) = read()
        assert SAMPLES[name]["detail"]["data"]["rule"] in message["Subject"]

    kind, error = notifier.invoke({"detail-type": "Verdict Changed"})
    assert (kind, error["errorType"]) == ("error", "KeyError")
    muted = notifier.invoke(SAMPLES["verdict-muted"])
    assert muted == Answer("response", {"published": 0})  # it goes on


@pytest.mark.parametrize("package", FUNCTIONS)
def test_every_function_starts_from_its_own_code_and_the_layers(package: str, start: Start) -> None:
    """An event that no function knows is answered by the handler, not by the import."""
    kind, error = start(package).invoke({})
    assert kind != "init", error


def test_a_function_that_cannot_be_imported_says_what_is_missing(
    deployed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    path = [deployed / "evaluator", deployed / "deps", SITE_PACKAGES]  # without the core layer
    broken = Function("lambdas.evaluator.handler.handler", path, environment, tmp_path / "log")
    with closing(broken):
        kind, error = broken.wait()
    assert (kind, error["errorType"]) == ("init", "Runtime.ImportModuleError")
    assert "No module named 'trainwarden'" in error["errorMessage"]
