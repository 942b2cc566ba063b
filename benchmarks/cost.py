"""What it costs to watch a job: AWS calls counted while the real pipeline judges it, and priced.

    python benchmarks/cost.py [--steps 10000] [--per-object 10] [--rows 429]

The pipeline runs over the S3 and DynamoDB adapters on an AWS inside this process, one notice an
object, as when objects come ten seconds apart: nothing is batched, the dearest case. Its own time
is measured over the memory adapters; the time a Lambda waits for AWS is assumed.
Prices: us-east-1, list, on demand, without free tiers.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import numpy as np
from moto import mock_aws

from trainwarden.model import Channels, FloatArray, Layout, Mode, Observation, TensorInfo
from trainwarden.pipeline import Pipeline, Settings
from trainwarden.stats.reductions import Tensor, channel_columns, table
from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import Ledger, ObjectStore
from trainwarden.store.s3 import S3Objects
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import End, Manifest

TARGET_USD = 0.02  # 10,000 saved steps at 10 steps an object
JOB, RUN = "cost", "run-1"
DISTINCT = 40  # steps with tables of their own; they repeat after that
START = 1_790_000_000.0

# USD for one of each.
S3_PUT_OR_LIST, S3_GET, S3_GB_MONTH = 5.00e-6, 0.40e-6, 0.023
SQS_REQUEST = 0.40e-6
WRITE_UNIT, READ_UNIT = 0.625e-6, 0.125e-6
LAMBDA_REQUEST, LAMBDA_GB_S = 0.20e-6, 1.33334e-5  # arm64
EVENT = 1.00e-6
LOG_GB = 0.50
TRACE = 5.00e-6

# Assumed.
AWS_CALL_MS = 10.0  # of waiting, warm, same region
HANDLER_MS = 3.0  # logger, metrics, batch processor
MEMORY_GB = 1.0  # the stack's default for the evaluator
LOG_BYTES = 1_200  # an invocation: START, END, REPORT, one line of metrics
SQS_REQUESTS = 3  # a notice: sent, received, deleted


@dataclass
class Meter:
    """Counts what clients ask, in the units AWS bills."""

    calls: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: int = 0
    events: int = 0

    def watch(self, client: Any) -> Any:
        """Count every call of a boto3 client from now on."""
        client.meta.events.register("provide-client-params.*.*", self._asked)
        client.meta.events.register("after-call.*.*", self._answered)
        return client

    def _asked(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        self.calls[model.name] += 1
        if model.name == "PutItem":
            self.write_units += units(params["Item"], 1024)
        for item in params.get("TransactItems", ()):
            put, update = item.get("Put"), item.get("Update")
            values = put["Item"] if put else update["ExpressionAttributeValues"] | update["Key"]
            self.write_units += 2 * units(values, 1024)
            if update and ":outbox" in values:
                self.events += len(json.loads(values[":outbox"]["S"]))

    def _answered(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name == "GetItem":
            self.read_units += units(parsed.get("Item", {}), 4096)
        if model.name == "Query":
            self.read_units += sum(units(item, 4096) for item in parsed["Items"]) or 1


def units(item: dict[str, Any], size: int) -> int:
    """Return the capacity units of one item, at least one."""
    length = sum(len(name) + len(next(iter(typed.values()))) for name, typed in item.items())
    return max(1, math.ceil(length / size))


def layout(rows: int) -> Layout:
    """Describe a deep network: a weight, its gradient and an activation per layer."""
    tensors: list[TensorInfo] = []
    for depth in range(math.ceil(rows / 3)):
        module, weight = f"layer{depth}", f"layer{depth}.weight"
        for name, collection, kind in (
            (weight, "weights", "Linear"),
            (f"gradient/{weight}", "gradients", "Linear"),
            (f"activation/{module}", "activations", "ReLU"),
        ):
            tensors.append(TensorInfo(name, collection, (16, 16), "float32", module, kind, depth))
    return Layout(tuple(tensors[:rows]))


def steps(described: Layout) -> Iterator[Observation]:
    """Yield a healthy job's saved steps for ever; the tables are those of real, small tensors."""
    rng = np.random.default_rng(7)
    rows = len(described.tensors)
    tables: list[tuple[FloatArray, dict[str, Channels]]] = []
    before = [rng.normal(0, 0.1, 256).astype(np.float32) for _ in range(rows)]
    for _ in range(DISTINCT):
        now = [x + rng.normal(0, 1e-3, 256).astype(np.float32) for x in before]
        stats = np.empty((rows, 32))
        table([Tensor(x, "float32", p) for x, p in zip(now, before, strict=True)], stats)
        channels: dict[str, Channels] = {}
        for row in described.rows("activations").tolist():
            activity = Channels(rng.integers(100, 156, 16), 256)
            channels[described.names[row]] = activity
            channel_columns(stats[row], activity)
        tables.append((stats, channels))
        before = now
    step = 0
    while True:
        stats, channels = tables[step % DISTINCT]
        loss = 2.0 * math.exp(-step / 20_000) + 0.1 * float(rng.random())
        scalars = {"losses": {"loss": loss}, "optimizer": {"lr_0": 0.1}}
        yield Observation(step, Mode.TRAIN, step, START + step, described, stats, scalars, channels)
        step += 1


@dataclass
class Bill:
    """What judging one job took.

    Attributes:
        objects: Steps objects.
        saved: Saved steps.
        stored_bytes: Bytes of all objects.
        notices: Invocations of the evaluator.
        meter: The evaluator's calls.
        own_ms: Its own time for a notice, without waiting for AWS.
    """

    objects: int
    saved: int
    stored_bytes: int
    notices: int
    meter: Meter
    own_ms: float

    @property
    def gets(self) -> int:
        """GET requests, found or not."""
        return self.meter.calls["GetObject"]

    @property
    def lambda_ms(self) -> float:
        """Billed time of an invocation."""
        waiting = AWS_CALL_MS * self.meter.calls.total() / self.notices
        return HANDLER_MS + self.own_ms + waiting

    def lines(self) -> list[tuple[str, str, float]]:
        """Return what is billed: name, how much of it, USD."""
        m, n = self.meter, self.notices
        lists, megabytes = m.calls["ListObjectsV2"], self.stored_bytes / 1e6
        announced = m.calls["TransactWriteItems"]
        logs = (n + announced) * LOG_BYTES
        return [
            ("S3 PUT", f"{n} objects", n * S3_PUT_OR_LIST),
            ("S3 GET", f"{self.gets}", self.gets * S3_GET),
            ("S3 LIST", f"{lists}", lists * S3_PUT_OR_LIST),
            ("S3 storage, 1 month", f"{megabytes:.1f} MB", megabytes / 1e3 * S3_GB_MONTH),
            ("SQS", f"{SQS_REQUESTS * n} requests", SQS_REQUESTS * n * SQS_REQUEST),
            ("Lambda requests", f"{n + announced}", (n + announced) * LAMBDA_REQUEST),
            (
                "Lambda time",
                f"{self.lambda_ms:.1f} ms each",
                n * self.lambda_ms / 1e3 * MEMORY_GB * LAMBDA_GB_S,
            ),
            ("DynamoDB writes", f"{m.write_units} units", m.write_units * WRITE_UNIT),
            ("DynamoDB reads", f"{m.read_units} units", m.read_units * READ_UNIT),
            ("EventBridge", f"{m.events} events", m.events * EVENT),
            ("Logs", f"{logs / 1e6:.1f} MB", logs / 1e9 * LOG_GB),
        ]

    @property
    def usd(self) -> float:
        """What the job costs altogether."""
        return sum(line[2] for line in self.lines())


def bodies(count: int, per_object: int, rows: int) -> Iterator[tuple[str, bytes]]:
    """Yield everything a hook writes in a job, in order: key, body."""
    described = layout(rows)
    manifest = Manifest(JOB, RUN, framework="torch", layout=described, created=START)
    yield str(ManifestKey(JOB)), manifest.to_bytes()
    saved = steps(described)
    for seq in range(count):
        observations = tuple(next(saved) for _ in range(per_object))
        yield str(StepsKey(JOB, 0, seq)), encode(StepsObject(JOB, 0, seq, RUN, observations))
    end = End(JOB, 0, RUN, count - 1, time=START + count * per_object)
    yield str(EndKey(JOB, 0)), end.to_bytes()


def judge(
    write: Callable[[str, bytes], None], objects: ObjectStore, ledger: Ledger, run: Any
) -> tuple[int, int, float]:
    """Write and judge a job, a notice an object; return notices, bytes, seconds of the pipeline."""
    clock = [START]
    pipeline = Pipeline(objects, ledger, None, Settings(), lambda: clock[0])
    notices = size = folded = 0
    spent = 0.0
    for key, body in run:
        write(key, body)
        clock[0] += 10.0
        begin = time.process_time()
        folded += pipeline.notice(key).folded
        spent += time.process_time() - begin
        notices, size = notices + 1, size + len(body)
    record = ledger.load(JOB)
    if record is None or record.status.value != "Closed":
        raise RuntimeError(f"the job was not judged to its end: {record}")
    return notices, size, spent


def measure(saved: int = 10_000, per_object: int = 10, rows: int = 429) -> Bill:
    """Judge one job twice: for its calls over AWS adapters, for its own time over memory."""
    count = math.ceil(saved / per_object)
    meter, memory = Meter(), MemoryObjects()
    with mock_aws():
        s3, dynamodb = _client("s3"), _client("dynamodb")
        s3.create_bucket(Bucket="bucket")
        _create_table(dynamodb)
        hook = S3Objects("bucket", s3)
        objects = S3Objects("bucket", meter.watch(_client("s3")))
        ledger = DynamoLedger("table", meter.watch(_client("dynamodb")))
        judge(hook.put, objects, ledger, bodies(count, per_object, rows))
    timed = judge(memory.put, memory, MemoryLedger(), bodies(count, per_object, rows))
    meter.calls["GetItem"] -= 1  # the look at the outcome
    notices, size, spent = timed
    return Bill(count, count * per_object, size, notices, meter, 1e3 * spent / notices)


def _client(service: str) -> Any:
    make: Callable[..., Any] = boto3.client
    secret = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return make(service, region_name="us-east-1", **secret)


def _create_table(dynamodb: Any) -> None:
    names = ("pk", "sk", "open")
    dynamodb.create_table(
        TableName="table",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in names],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "open",
                "KeySchema": [{"AttributeName": "open", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )


def main() -> None:
    """Print the bill beside its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--per-object", type=int, default=10)
    parser.add_argument("--rows", type=int, default=429)
    args = parser.parse_args()
    bill = measure(args.steps, args.per_object, args.rows)
    print(f"{bill.saved} saved steps, {args.per_object} an object, {args.rows} rows")
    for name, amount, usd in bill.lines():
        print(f"  {name:<22}{amount:>18}{usd:>12.5f} USD")
    target = f"(target for 10,000 steps at 10 an object: at most {TARGET_USD} USD)"
    print(f"  {'together':<40}{bill.usd:>12.5f} USD {target}")
    calls = ", ".join(f"{n} {c / bill.notices:.2f}" for n, c in sorted(bill.meter.calls.items()))
    print(f"  calls a notice: {calls}")
    print(f"  not included: X-Ray, {TRACE:g} USD a trace: {bill.notices * TRACE:.4f} if all are")


if __name__ == "__main__":
    main()
