"""What is done about a verdict: may this job be stopped, and what came of it; ask it for detail.

``{"operation": "authorize", "job", "rule"}`` answers ``{"allowed", "dry_run", "reason", "how"}``;
``{"operation": "ask", "job", "rule"}`` asks the loop of a job outside SageMaker to end, and answers
``{"outcome", "reason"}``; ``{"operation": "record", "job", "rule", "kind", "result": {"outcome",
"reason"}}`` writes it down. These come from Step Functions.
``{"operation": "capture", "job", "rule"}`` comes from EventBridge: the hook is asked for detail,
whatever started the job, and that is written down.
This function cannot stop a SageMaker job itself.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from lambdas.shared import wiring
from lambdas.shared.obs import logger, metrics
from trainwarden.errors import BadInputError


@logger.inject_lambda_context(clear_state=True)
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda entry point; raising makes the state machine try again."""
    del context
    operation, job, rule = event["operation"], event["job"], event["rule"]
    logger.append_keys(job=job, rule=rule)
    if operation == "authorize":
        decision = asdict(wiring.pipeline().authorize_stop(job, rule))
        logger.info("authorized" if decision["allowed"] else "refused", reason=decision["reason"])
        return decision
    if operation == "ask":
        asked = wiring.pipeline().ask_to_stop(job, f"{rule} found issues")
        logger.info("asked", version=asked.version)
        return {"outcome": "asked", "reason": "the training loop was asked to end after its step"}
    if operation == "capture":
        result = wiring.pipeline().capture_more(job, rule)
        logger.info("capture", outcome=result["outcome"], reason=result["reason"])
        return result
    if operation == "record":
        wiring.pipeline().record_action(job, event.get("kind", "stop"), rule, event["result"])
        return {"job": job, "rule": rule, **event["result"]}
    raise BadInputError("the operation authorize, ask, capture or record", repr(operation))
