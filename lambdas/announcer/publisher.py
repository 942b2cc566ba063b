"""Puts events on a bus: those that failed are tried again, those that went are not."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.shared.obs import logger
from trainwarden.errors import RetryableError

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef

ENTRIES = 10  # EventBridge: at most in one call, and 256 KiB together
BYTES = 240_000
_ENVELOPE = 512  # more than source, type and bus of an entry ever take
ATTEMPTS = 4
REMEMBERED = 10_000


class Pending(NamedTuple):
    """One event on its way: ``id`` is unique in the stream, ``entry`` is PutEvents' form."""

    id: str
    entry: PutEventsRequestEntryTypeDef


class Publisher:
    """Sends events to one bus; never drops one.

    Args:
        client: EventBridge.
        bus: Name of the bus.
        pause: Waits so many seconds; replaced in tests.
    """

    def __init__(
        self, client: EventBridgeClient, bus: str, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._client, self._bus, self._pause = client, bus, pause
        self._sent: OrderedDict[str, None] = OrderedDict()

    def publish(self, record: str, events: Sequence[dict[str, Any]]) -> None:
        """Send the events of one stream record, in order as far as nothing fails.

        Raises:
            RetryableError: some were not taken; the record must come back.
        """
        pending = [
            Pending(f"{record}#{position}", self._entry(event))
            for position, event in enumerate(events)
            if f"{record}#{position}" not in self._sent
        ]
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(0.1 * 2**attempt)
            failed: list[Pending] = []
            for chunk in chunks(pending):
                refused, reason = self._put(chunk)
                failed += refused
            if not failed:
                return
            pending = failed
        raise RetryableError(f"{len(pending)} of {len(events)} events were not taken: {reason}")

    def _put(self, chunk: Sequence[Pending]) -> tuple[list[Pending], str]:
        """Send one call's worth; return what was not taken, and why."""
        try:
            answer = self._client.put_events(Entries=[p.entry for p in chunk])
        except (BotoCoreError, ClientError) as exc:
            return list(chunk), str(exc)
        refused, reason = [], ""
        for pending, result in zip(chunk, answer["Entries"], strict=True):
            if result.get("ErrorCode"):
                refused.append(pending)
                reason = f"{result['ErrorCode']}: {result.get('ErrorMessage', '')}"
            else:
                self._remember(pending.id)
        if refused:
            logger.warning("events refused", count=len(refused), reason=reason)
        return refused, reason

    def _remember(self, id_: str) -> None:
        self._sent[id_] = None
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    def _entry(self, event: dict[str, Any]) -> PutEventsRequestEntryTypeDef:
        return {
            "EventBusName": self._bus,
            "Source": event["source"],
            "DetailType": event["detail-type"],
            "Detail": json.dumps(event["detail"], allow_nan=False, ensure_ascii=False),
        }


def chunks(pending: Sequence[Pending]) -> Iterator[list[Pending]]:
    """Yield runs that one call may hold."""
    chunk: list[Pending] = []
    size = 0
    for one in pending:
        weight = len(one.entry["Detail"].encode()) + _ENVELOPE
        if chunk and (len(chunk) == ENTRIES or size + weight > BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += weight
    if chunk:
        yield chunk
