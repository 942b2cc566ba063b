"""Schedule (one minute) -> stalled jobs, gaps past their deadline, jobs without data."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.shared import obs, wiring
from lambdas.shared.obs import logger, metrics


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Lambda entry point; a job that fails is left to the next minute and does not stop others."""
    del event, context
    swept = wiring.pipeline().sweep()
    obs.count(
        {
            obs.OBJECTS_FOLDED: swept.folded,
            obs.FINDINGS_RECORDED: swept.findings,
            obs.UPLOADS_DROPPED: sum(swept.dropped.values()),
        }
    )
    for job, reason in swept.failed.items():
        logger.warning("left to the next sweep", job=job, reason=reason)
    return {"jobs": swept.jobs, "closed": swept.closed, "failed": len(swept.failed)}
