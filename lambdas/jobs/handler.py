"""EventBridge (SageMaker Training Job State Change) -> open and close jobs.

Jobs without a tag of ours are ignored, unless their script sends data anyway.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.jobs.description import training_job
from lambdas.shared import wiring
from lambdas.shared.measures import measure
from lambdas.shared.obs import logger, metrics
from trainwarden.config import is_ours
from trainwarden.errors import BadInputError
from trainwarden.store.ports import TrainingJob

OVER = frozenset({"Completed", "Failed", "Stopped"})


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """Lambda entry point; raising makes EventBridge try again."""
    del context
    name = event["detail"]["TrainingJobName"]
    logger.append_keys(job=name)
    pipeline = wiring.pipeline()
    # The event mirrors the description; tags are asked for only where it leaves them out.
    told = "Tags" in event["detail"]
    job = training_job(event["detail"]) if told else wiring.training_jobs().describe(name)
    if job is None or not (any(map(is_ours, job.tags)) or wiring.ledger().load(name)):
        return {"job": name, "done": "ignored"}
    if told:
        job = _as_described(job)
    measure(pipeline.close_job(job) if job.status in OVER else pipeline.open_job(job))
    logger.info("state change", status=job.status, secondary_status=job.secondary_status)
    return {"job": name, "done": "closed" if job.status in OVER else "opened"}


def _as_described(job: TrainingJob) -> TrainingJob:
    """Take from the description what the run's seal is made of; an event may shorten it."""
    with suppress(BadInputError):  # access denied: the event is all there is
        found = wiring.training_jobs().describe(job.name)
        if found is not None:
            return replace(
                job, arn=found.arn, hyperparameters=found.hyperparameters, tags=found.tags
            )
    return job
