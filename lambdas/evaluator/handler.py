"""SQS (S3 object-created notices) -> fold what jobs saved through their rules.

Delivery is at least once and unordered; the ledger makes both harmless.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.batch import EventType, process_partial_response
from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.evaluator.batch import Batch
from lambdas.shared import wiring
from lambdas.shared.obs import LoggedBatch, logger, metrics

processor = LoggedBatch(EventType.SQS)


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda entry point; messages that could not be handled go back alone."""
    batch = Batch(event, wiring.pipeline(), context.get_remaining_time_in_millis)
    return dict(process_partial_response(event, batch.on_message, processor, context))
