from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from trainwarden.errors import BadInputError, ConflictError, RetryableError, TooLargeError
from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus

RECORD = JobRecord("demo", version=4, status=JobStatus.OPEN)
FINDING = Entry(EntryKind.FINDING, "000000000007#Overfit#abc", {"value": float("nan")})
OUTBOX = Entry(EntryKind.OUTBOX, "0000000004", {"events": [{"source": "trainwarden"}]})


class Recording:
    """A client that answers nothing and remembers what was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> dict[str, Any]:
            self.calls.append((name, request))
            return {}

        return call


@pytest.fixture
def client() -> Any:
    return Recording()


@pytest.fixture
def ledger(client: Any) -> DynamoLedger:
    return DynamoLedger("table", client, now=lambda: 1_000.7)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with Stubber(boto3.client("dynamodb", region_name="us-east-1")) as stubber:
        yield stubber
    stubber.assert_no_pending_responses()


def noise(size: int) -> str:
    """Text that does not compress well."""
    return "".join(random.Random(0).choices("0123456789abcdef", k=size))  # noqa: S311 - no secret


def cancel(stub: Any, codes: Sequence[str]) -> None:
    reasons = [{"Code": code, "Message": f"{code} said"} for code in codes]
    stub.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        modeled_fields={"CancellationReasons": reasons},
    )


def test_a_commit_with_entries_is_one_transaction_on_the_version_seen(
    ledger: DynamoLedger, client: Recording
) -> None:
    ledger.commit(RECORD, [FINDING, OUTBOX])
    [(operation, request)] = client.calls
    assert operation == "transact_write_items"
    head, *updates = request["TransactItems"]
    assert head["Put"]["ConditionExpression"] == "version = :seen"
    assert head["Put"]["ExpressionAttributeValues"] == {":seen": {"N": "3"}}
    assert [update["Update"]["Key"]["sk"]["S"] for update in updates] == [
        "FINDING#000000000007#Overfit#abc",
        "OUT#0000000004",
    ]


def test_a_commit_without_entries_is_one_conditional_put_at_half_the_price(
    ledger: DynamoLedger, client: Recording
) -> None:
    ledger.commit(RECORD)
    ledger.commit(replace(RECORD, version=1))
    assert [operation for operation, _ in client.calls] == ["put_item", "put_item"]
    assert [request["ConditionExpression"] for _, request in client.calls] == [
        "version = :seen",
        "attribute_not_exists(pk)",
    ]


def test_a_load_is_one_strongly_consistent_read(ledger: DynamoLedger, client: Recording) -> None:
    assert ledger.load("demo") is None
    [(operation, request)] = client.calls
    assert operation == "get_item"
    assert request["ConsistentRead"] is True
    assert request["Key"] == {"pk": {"S": "JOB#demo"}, "sk": {"S": "HEAD"}}


def test_the_record_is_compressed_and_marks_the_open_jobs(
    ledger: DynamoLedger, client: Recording
) -> None:
    ledger.commit(replace(RECORD, rules={f"layer{n}": [0, 1.5] for n in range(1_000)}))
    ledger.commit(replace(RECORD, status=JobStatus.CLOSED))
    item, closed = (request["Item"] for _, request in client.calls)
    text = zlib.decompress(item["record"]["B"])
    assert json.loads(text)["job"] == "demo"
    assert len(item["record"]["B"]) < len(text) / 3
    assert item["open"] == {"S": "OPEN"}
    assert "open" not in closed


def test_outbox_items_alone_carry_the_events_and_expire_after_a_day(
    ledger: DynamoLedger, client: Recording
) -> None:
    ledger.commit(RECORD, [FINDING, OUTBOX])
    _, finding, outbox = client.calls[0][1]["TransactItems"]
    assert finding["Update"]["ExpressionAttributeValues"] == {":body": {"S": '{"value":"NaN"}'}}
    assert outbox["Update"]["UpdateExpression"] == (
        "SET outbox = if_not_exists(outbox, :outbox), "
        "expires_at = if_not_exists(expires_at, :expires_at)"
    )
    assert outbox["Update"]["ExpressionAttributeValues"] == {
        ":outbox": {"S": '[{"source":"trainwarden"}]'},
        ":expires_at": {"N": "87400"},
    }


@pytest.mark.parametrize("entries", [[], [FINDING]], ids=["put", "transaction"])
def test_a_record_near_400_kb_is_refused_and_names_its_largest_part(
    ledger: DynamoLedger, client: Recording, entries: list[Entry]
) -> None:
    rules = {"rules": {"Overfit": {"best": 1.0}, "DeadRelu": {"seen": noise(900_000)}}}
    with pytest.raises(
        TooLargeError, match=r"399360 .*the state of DeadRelu takes about \d{6}.*fewer tensors"
    ):
        ledger.commit(replace(RECORD, rules=rules), entries)
    assert client.calls == []


def test_an_entry_near_400_kb_and_a_commit_near_4_mb_are_refused(
    ledger: DynamoLedger, client: Recording
) -> None:
    def entry(number: int, size: int) -> Entry:
        return Entry(EntryKind.FINDING, f"{number}", {"text": "x" * size})

    with pytest.raises(BadInputError, match="an entry of at most"):
        ledger.commit(RECORD, [entry(1, 400_000)])
    with pytest.raises(BadInputError, match="a commit of at most"):
        ledger.commit(RECORD, [entry(n, 390_000) for n in range(11)])
    assert client.calls == []


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        (["ConditionalCheckFailed", "None"], ConflictError),
        (["None", "TransactionConflict"], ConflictError),
        (["ThrottlingError", "ConditionalCheckFailed"], ConflictError),
        (["None", "ThrottlingError"], RetryableError),
        (["ProvisionedThroughputExceeded", "None"], RetryableError),
        (["None", "None"], RetryableError),
        (["ValidationError", "None"], BadInputError),
        (["None", "ItemCollectionSizeLimitExceeded"], BadInputError),
    ],
)
def test_a_cancelled_transaction_says_what_to_do_next(
    stub: Any, codes: list[str], error: type[Exception]
) -> None:
    cancel(stub, codes)
    with pytest.raises(error) as caught:
        DynamoLedger("table", stub.client).commit(RECORD, [FINDING])
    assert type(caught.value) is error
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ConditionalCheckFailedException", ConflictError),
        ("TransactionConflictException", ConflictError),
        ("ProvisionedThroughputExceededException", RetryableError),
        ("ThrottlingException", RetryableError),
        ("RequestLimitExceeded", RetryableError),
        ("InternalServerError", RetryableError),
        ("ResourceNotFoundException", BadInputError),
        ("AccessDeniedException", BadInputError),
        ("ValidationException", BadInputError),
    ],
)
def test_a_refused_put_says_what_to_do_next(stub: Any, code: str, error: type[Exception]) -> None:
    stub.add_client_error("put_item", code)
    with pytest.raises(error) as caught:
        DynamoLedger("table", stub.client).commit(RECORD)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("ProvisionedThroughputExceededException", RetryableError, "now"),
        ("ResourceNotFoundException", BadInputError, "is trainwarden deployed there"),
        ("AccessDeniedException", BadInputError, "allow dynamodb:GetItem"),
    ],
)
def test_reads_translate_errors_too(
    stub: Any, code: str, error: type[Exception], said: str
) -> None:
    ledger = DynamoLedger("table", stub.client)
    for operation in ("get_item", "query", "query", "scan"):
        stub.add_client_error(operation, code)
    with pytest.raises(error, match=said):
        ledger.load("demo")
    with pytest.raises(error, match=said):
        list(ledger.entries("demo", EntryKind.FINDING))
    with pytest.raises(error, match=said):
        list(ledger.open_jobs())
    with pytest.raises(error, match=said):
        list(ledger.jobs())


@pytest.mark.parametrize("body", [b"", b"no zlib", zlib.compress(b"x" * 99)[:-3]])
def test_a_damaged_record_is_refused(stub: Any, body: bytes) -> None:
    item = {"pk": {"S": "JOB#demo"}, "sk": {"S": "HEAD"}, "record": {"B": body}}
    stub.add_response("get_item", {"Item": item})
    with pytest.raises(BadInputError, match="record"):
        DynamoLedger("table", stub.client).load("demo")


def test_pages_are_followed_to_the_last(stub: Any) -> None:
    key = {"pk": {"S": "JOB#demo"}, "sk": {"S": "FINDING#a"}}
    entries = [{**key, "sk": {"S": f"FINDING#{id_}"}, "body": {"S": "{}"}} for id_ in "ab"]
    asked: dict[str, Any] = {
        "TableName": "table",
        "KeyConditionExpression": "pk = :pk AND begins_with(sk, :sk)",
        "ExpressionAttributeValues": {":pk": {"S": "JOB#demo"}, ":sk": {"S": "FINDING#"}},
        "ConsistentRead": True,
    }
    stub.add_response("query", {"Items": entries[:1], "LastEvaluatedKey": key}, asked)
    stub.add_response(
        "query", {"Items": [], "LastEvaluatedKey": key}, {**asked, "ExclusiveStartKey": key}
    )
    stub.add_response("query", {"Items": entries[1:]}, {**asked, "ExclusiveStartKey": key})
    found = DynamoLedger("table", stub.client).entries("demo", EntryKind.FINDING)
    assert [entry.id for entry in found] == ["a", "b"]


def test_what_was_found_is_kept_for_the_days_asked_for_and_events_for_a_day(client: Any) -> None:
    ledger = DynamoLedger("table", client, keep_days=30, now=lambda: 1_000.7)
    ledger.commit(RECORD, [FINDING, OUTBOX])
    [(_, request)] = client.calls
    record, finding, outbox = request["TransactItems"]
    month, day = {"N": str(1_000 + 30 * 86_400)}, {"N": str(1_000 + 86_400)}
    assert record["Put"]["Item"]["expires_at"] == month
    assert finding["Update"]["ExpressionAttributeValues"][":expires_at"] == month
    assert outbox["Update"]["ExpressionAttributeValues"][":expires_at"] == day


def test_without_days_nothing_that_was_found_expires(ledger: DynamoLedger, client: Any) -> None:
    ledger.commit(RECORD, [FINDING])
    [(_, request)] = client.calls
    record, finding = request["TransactItems"]
    assert "expires_at" not in record["Put"]["Item"]
    assert ":expires_at" not in finding["Update"]["ExpressionAttributeValues"]
