"""What only DynamoDB has: a sparse index and a stream of outbox items."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus

RECORD = JobRecord("demo", version=1, status=JobStatus.OPEN)


def index(dynamodb: Any, table: str) -> list[dict[str, Any]]:
    return list(dynamodb.scan(TableName=table, IndexName="open")["Items"])


def test_the_index_holds_the_record_until_it_is_closed_and_no_entries(
    dynamodb: Any, table: str
) -> None:
    ledger = DynamoLedger(table, dynamodb)
    ledger.commit(RECORD, [Entry(EntryKind.FINDING, "a", {}), Entry(EntryKind.ACTION, "b", {})])
    assert index(dynamodb, table) == [
        {"pk": {"S": "JOB#demo"}, "sk": {"S": "HEAD"}, "open": {"S": "OPEN"}}
    ]
    ledger.commit(replace(RECORD, version=2, status=JobStatus.CLOSED))
    assert index(dynamodb, table) == []


def test_the_stream_shows_one_insert_with_the_events_of_a_commit(
    dynamodb: Any, table: str, moto: Any
) -> None:
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    dynamodb.update_table(TableName=table, StreamSpecification=stream)
    events = [{"source": "trainwarden", "detail-type": "Job Opened"}]
    DynamoLedger(table, dynamodb).commit(RECORD, [Entry(EntryKind.OUTBOX, "1", {"events": events})])
    streams = moto("dynamodbstreams")
    arn = dynamodb.describe_table(TableName=table)["Table"]["LatestStreamArn"]
    [shard] = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    start = streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )
    found = streams.get_records(ShardIterator=start["ShardIterator"])["Records"]
    outbox = [r for r in found if "outbox" in r["dynamodb"]["NewImage"]]
    assert [r["eventName"] for r in outbox] == ["INSERT"]
    assert json.loads(outbox[0]["dynamodb"]["NewImage"]["outbox"]["S"]) == events
