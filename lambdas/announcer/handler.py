"""DynamoDB stream (outbox entries) -> events on the deployment's own bus.

At least once: a record that fails goes back whole; what it had already sent is remembered for as
long as the container lives, and consumers know an event by its id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from aws_lambda_powertools.utilities.batch import EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.announcer.publisher import Publisher
from lambdas.shared import wiring
from lambdas.shared.obs import LoggedBatch, logger, metrics
from trainwarden.store import records

processor = LoggedBatch(EventType.DynamoDBStreams)


@lru_cache(maxsize=1)
def publisher() -> Publisher:
    """Return the container's publisher; it remembers what was sent."""
    return Publisher(wiring.bus(), wiring.bus_name())


def on_record(record: DynamoDBRecord) -> None:
    """Send one outbox entry's events; raising sends the record back."""
    image = (record.dynamodb.new_image if record.dynamodb else None) or {}
    if "outbox" in image:  # the event source filters; an expired entry has no new image
        publisher().publish(record.event_id or "", records.loads(image["outbox"]))


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda entry point."""
    return dict(process_partial_response(event, on_record, processor, context))
