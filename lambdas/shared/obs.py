"""The one logger and the one set of metrics.

Metrics have the dimension ``service`` and no other: a dimension with the job's name would cost
money for every job.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType

from trainwarden.errors import RetryableError

logger = Logger()
metrics = Metrics(namespace="Trainwarden")

OBJECTS_FOLDED = "ObjectsFolded"
FOLD_LAG_SECONDS = "FoldLagSeconds"
FINDINGS_RECORDED = "FindingsRecorded"
RULE_CRASHES = "RuleCrashes"
GAPS_SKIPPED = "GapsSkipped"
UPLOADS_DROPPED = "UploadsDropped"
DATA_REJECTED = "DataRejected"
CONFLICTS = "Conflicts"


def count(values: Mapping[str, int]) -> None:
    """Add counts to the invocation's metrics; zeros cost nothing and are left out."""
    for name, value in values.items():
        if value:
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=value)


def seconds(name: str, value: float) -> None:
    """Add a time to the invocation's metrics."""
    metrics.add_metric(name=name, unit=MetricUnit.Seconds, value=value)


def epoch(moment: str) -> float:
    """Return ISO 8601 text as seconds since the epoch, now if it cannot be read."""
    try:
        return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return time.time()


class LoggedBatch(BatchProcessor):
    """A batch whose failed records go back one by one, each with its reason in the log."""

    def __init__(self, event_type: EventType) -> None:
        # The default fails the whole invocation when its only record does, and pollutes alarms.
        super().__init__(event_type=event_type, raise_on_entire_batch_failure=False)

    def failure_handler(self, record: Any, exception: Any) -> Any:
        """Log why a record goes back; Powertools itself keeps it to itself."""
        if isinstance(exception[1], RetryableError):
            logger.warning("record goes back", reason=str(exception[1]))
        else:
            logger.error("record goes back", exc_info=exception)
        return super().failure_handler(record, exception)
