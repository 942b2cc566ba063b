"""The ledger in one DynamoDB table.

| item | pk | sk | other attributes |
|---|---|---|---|
| record | ``JOB#<job>`` | ``HEAD`` | version N, status S, record B (zlib of JSON), open S or none |
| entry | ``JOB#<job>`` | ``<KIND>#<id>`` | body S (JSON) |
| outbox | ``JOB#<job>`` | ``OUT#<id>`` | outbox S (JSON list of events) |

Each carries expires_at N (seconds since the epoch) if it is to go some day: an outbox entry after
a day, the others ``keep_days`` after the job's last commit or the entry's own.

Index ``open``: partition key ``open``, keys only, so that it holds the jobs that are not closed and
nothing else, and a commit that leaves a job open costs it no write.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainwarden.errors import (
    BadInputError,
    ConflictError,
    RetryableError,
    TooLargeError,
    TrainwardenError,
)
from trainwarden.store import records
from trainwarden.store.aws_errors import code_of, of_client, translated
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus
from trainwarden.wire.keys import job_name

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Item = dict[str, Any]

MAX_ITEM_BYTES = 390 * 1024  # DynamoDB: 400 KB with the names of attributes; keys take the rest
MAX_COMMIT_BYTES = 3_900_000  # DynamoDB: 4 MB in a transaction
MAX_RECORD_BYTES = 256 << 20  # of JSON; a damaged record must not fill the memory
DAY_S = 24 * 3600
OUTBOX_S = DAY_S  # the stream keeps a day
_PERMISSION = "dynamodb:GetItem, PutItem, UpdateItem, Query and Scan on the table and its index"
_THROTTLED = {"ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"}


class DynamoLedger:
    """A ``Ledger`` in a DynamoDB table.

    Args:
        table_name: Name of the table; see the module for its keys and index.
        client: A boto3 DynamoDB client.
        keep_days: Days after which jobs and what was found in them expire; 0: never.
        now: Seconds since the epoch, for the time when items expire.
    """

    def __init__(
        self,
        table_name: str,
        client: DynamoDBClient,
        *,
        keep_days: int = 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._table = table_name
        self._client = client
        self._keep_s = keep_days * DAY_S
        self._now = now

    def load(self, job: str) -> JobRecord | None:
        """Read a job's record, strongly consistent; None if the job is unknown.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such table, access denied, a damaged record.
        """
        with translated(f"read {job} from table {self._table}", permission=_PERMISSION):
            answer = self._client.get_item(
                TableName=self._table, Key=_key(job, "HEAD"), ConsistentRead=True
            )
        item = answer.get("Item")
        return _record(item) if item else None

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        """Write the record and its entries, all or nothing; an entry that exists stays as it is.

        Raises:
            ConflictError: another writer committed first; nothing was written.
            RetryableError: throttled or unreachable.
            TooLargeError: the record does not fit an item.
            BadInputError: too many entries, too large ones, or refused for ever.
        """
        kept = records.checked(record, entries)
        put = self._put(record)
        updates = [self._update(record.job, entry) for entry in kept]
        size = sum(map(_size, (put["Item"], *(u["ExpressionAttributeValues"] for u in updates))))
        if size > MAX_COMMIT_BYTES:
            raise BadInputError(
                f"a commit of at most {MAX_COMMIT_BYTES} bytes", str(size), "commit fewer entries"
            )
        what = f"commit version {record.version} of {record.job} to table {self._table}"
        with translated(what, permission=_PERMISSION):
            try:
                if updates:
                    items: list[Any] = [{"Put": put}, *({"Update": u} for u in updates)]
                    self._client.transact_write_items(TransactItems=items)
                else:
                    # Half the price of a transaction of one. If the answer is lost and botocore
                    # sends it again, the second is refused: the caller reads its own commit as
                    # another's and starts from there, which is right either way.
                    self._client.put_item(**put)
            except ClientError as exc:
                raise _refused(exc, what) from exc

    def entries(self, job: str, kind: EntryKind) -> Iterator[Entry]:
        """Yield a job's entries of one kind in ascending order of id, strongly consistent.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such table, access denied.
        """
        start = f"{kind.value}#"
        return (
            _entry(kind, item["sk"]["S"][len(start) :], item)
            for item in self._pages(
                "query",
                KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
                ExpressionAttributeValues={":pk": _key(job, "")["pk"], ":sk": {"S": start}},
                ConsistentRead=True,
            )
        )

    def open_jobs(self) -> Iterator[str]:
        """Yield the names of jobs that are not ``CLOSED``; may lag behind a commit.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such table, access denied.
        """
        return (
            item["pk"]["S"].removeprefix("JOB#")
            for item in self._pages(
                "query",
                IndexName="open",
                KeyConditionExpression="#open = :open",
                ExpressionAttributeNames={"#open": "open"},  # a reserved word
                ExpressionAttributeValues={":open": {"S": "OPEN"}},
            )
        )

    def jobs(self) -> Iterator[JobRecord]:
        """Yield every job's record, in no order; reads the whole table.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever: no such table, access denied.
        """
        return (
            _record(item)
            for item in self._pages(
                "scan",
                FilterExpression="sk = :head",
                ExpressionAttributeValues={":head": {"S": "HEAD"}},
            )
        )

    def _pages(self, operation: str, **request: Any) -> Iterator[Item]:
        call: Callable[..., Mapping[str, Any]] = getattr(self._client, operation)
        while True:
            with translated(f"{operation} table {self._table}", permission=_PERMISSION):
                page = call(TableName=self._table, **request)
            yield from page["Items"]
            if not page.get("LastEvaluatedKey"):
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _put(self, record: JobRecord) -> Any:  # the stub's TypedDict cannot be built up
        item: Item = {
            **_key(record.job, "HEAD"),
            "version": {"N": str(record.version)},
            "status": {"S": record.status.value},
            "record": {"B": zlib.compress(records.record_to_text(record).encode(), 6)},
        }
        if record.status is not JobStatus.CLOSED:
            item["open"] = {"S": "OPEN"}
        item |= self._expiry(self._keep_s)
        if _size(item) > MAX_ITEM_BYTES:
            raise _too_large(record, _size(item))
        if record.version == 1:
            condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        else:
            condition = {
                "ConditionExpression": "version = :seen",
                "ExpressionAttributeValues": {":seen": {"N": str(record.version - 1)}},
            }
        return {"TableName": self._table, "Item": item, **condition}

    def _expiry(self, keep_s: int) -> Item:
        return {"expires_at": {"N": str(int(self._now()) + keep_s)}} if keep_s else {}

    def _update(self, job: str, entry: Entry) -> Any:
        """Set each attribute if it is not there: the first write stands, a later one succeeds.

        A ``Put`` with a condition would fail the transaction, and every retry of it, for ever.
        """
        values: Item
        if entry.kind is EntryKind.OUTBOX:
            values = {"outbox": {"S": records.message(entry.body["events"])}}
            values |= self._expiry(OUTBOX_S)
        else:
            values = {"body": {"S": records.body_to_text(entry)}, **self._expiry(self._keep_s)}
        if _size(values) > MAX_ITEM_BYTES:
            raise BadInputError(
                f"an entry of at most {MAX_ITEM_BYTES} bytes",
                f"{_size(values)} bytes in {entry.kind.value}#{entry.id[:80]}",
                "put less evidence into a finding",
            )
        return {
            "TableName": self._table,
            "Key": _key(job, f"{entry.kind.value}#{entry.id}"),
            "UpdateExpression": "SET "
            + ", ".join(f"{name} = if_not_exists({name}, :{name})" for name in values),
            "ExpressionAttributeValues": {f":{name}": value for name, value in values.items()},
        }


def _key(job: str, sk: str) -> dict[str, Any]:
    return {"pk": {"S": f"JOB#{job_name(job)}"}, "sk": {"S": sk}}


def _record(item: Item) -> JobRecord:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(item["record"]["B"], MAX_RECORD_BYTES)
    except zlib.error as exc:
        raise BadInputError("a zlib-compressed record", f"{item['pk']}: {exc}") from exc
    if inflate.unconsumed_tail or not inflate.eof:
        raise BadInputError("a whole record of at most 256 MiB", f"another in {item['pk']}")
    return records.record_from_text(text)


def _entry(kind: EntryKind, id_: str, item: Item) -> Entry:
    if kind is EntryKind.OUTBOX:
        return Entry(kind, id_, {"events": records.loads_message(item["outbox"]["S"])})
    return Entry(kind, id_, records.body_from_text(kind, item["body"]["S"]))


def _size(attributes: Item) -> int:
    """Size as DynamoDB counts it: names and values, in bytes of UTF-8."""
    return sum(
        len(name) + len(value.encode() if isinstance(value, str) else value)
        for name, typed in attributes.items()
        for value in typed.values()
    )


def _too_large(record: JobRecord, size: int) -> TooLargeError:
    named = record.rules.get("rules", record.rules)  # the engine keeps its rules' states by key
    parts = {f"the state of {name}": state for name, state in named.items()}
    parts |= {name: getattr(record, name) for name in ("config", "training", "manifest")}
    sizes = {
        name: len(zlib.compress(records.dumps(part).encode(), 1)) for name, part in parts.items()
    }
    largest = max(sizes, key=lambda name: sizes[name])
    return TooLargeError(
        f"a record of at most {MAX_ITEM_BYTES} bytes (DynamoDB's limit is 400 KB an item)",
        f"{size} bytes for {record.job}, of which {largest} takes about {sizes[largest]}",
        "watch fewer tensors, or leave that rule out of this job",
    )


def _refused(exc: ClientError, what: str) -> TrainwardenError:
    """Return our error for a commit that DynamoDB refused; nothing of it was written."""
    code = code_of(exc)
    if code in {"ConditionalCheckFailedException", "TransactionConflictException"}:
        return ConflictError(f"cannot {what}: another writer was first")
    if code != "TransactionCanceledException":
        return of_client(exc, what, permission=_PERMISSION)
    reasons: Sequence[Mapping[str, Any]] = exc.response.get("CancellationReasons", ())
    codes = {str(reason.get("Code", "None")) for reason in reasons} - {"None"}
    said = "; ".join(
        f"{r.get('Code')}: {r.get('Message', '')}" for r in reasons if r.get("Code") in codes
    )
    if "ConditionalCheckFailed" in codes or "TransactionConflict" in codes:
        return ConflictError(f"cannot {what}: another writer was first")
    if codes & _THROTTLED or not codes:
        return RetryableError(f"cannot {what} now: {said or exc}")
    return BadInputError(f"to {what}", said, "report this: trainwarden built a wrong request")
