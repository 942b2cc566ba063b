"""EventBridge (our own bus) -> e-mail and SMS through SNS.

At least once: EventBridge may deliver an event twice and SNS a message twice. Every message
carries ``event_id``, by which a subscriber that is a program knows it again; people may rarely
read the same message twice, and never miss one.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.notifier.publishing import publish
from lambdas.shared import wiring
from lambdas.shared.obs import logger, metrics
from trainwarden.messages import compose


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Lambda entry point; raising makes EventBridge try again."""
    del context
    detail = event["detail"]
    logger.append_keys(job=detail["metadata"]["job"], event_id=detail["metadata"]["event_id"])
    message = compose(event["detail-type"], detail)
    if message is None:
        return {"published": 0}
    return {"published": publish(wiring.topics(), wiring.topic_arn(), message, detail)}
