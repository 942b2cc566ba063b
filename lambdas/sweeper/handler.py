"""Schedule (one minute) -> stalled jobs, gaps past their deadline, jobs without data."""

from __future__ import annotations

import time
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.shared import wiring
from lambdas.shared.measures import measure
from lambdas.shared.obs import logger, metrics

RESERVE_MS = 10_000


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Lambda entry point; a job that fails is left to the next minute and does not stop others."""
    del event
    until = time.time() + (context.get_remaining_time_in_millis() - RESERVE_MS) / 1000
    swept = wiring.pipeline().sweep(until=until)
    measure(swept)
    for job, reason in swept.failed.items():
        logger.warning("left to the next sweep", job=job, reason=reason)
    return {"jobs": swept.jobs, "closed": swept.closed, "failed": len(swept.failed)}
