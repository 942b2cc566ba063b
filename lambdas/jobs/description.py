"""SageMaker's event, which mirrors DescribeTrainingJob, as a ``TrainingJob``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden.store.ports import TrainingJob


def training_job(detail: Mapping[str, Any]) -> TrainingJob:
    """Read the event's detail; what a job lacks is left out or null there."""
    return TrainingJob(
        name=detail["TrainingJobName"],
        arn=detail["TrainingJobArn"],
        status=detail["TrainingJobStatus"],
        secondary_status=detail.get("SecondaryStatus") or "",
        tags=_tags(detail.get("Tags") or {}),
        hyperparameters=dict(detail.get("HyperParameters") or {}),
        debug_hook=dict(detail.get("DebugHookConfig") or {}),
        debug_rules=tuple(detail.get("DebugRuleConfigurations") or ()),
        failure=detail.get("FailureReason") or "",
        instance=(detail.get("ResourceConfig") or {}).get("InstanceType") or "",
    )


def _tags(tags: Any) -> dict[str, str]:
    """Return tags by key; the documented event has a mapping, the API a list."""
    if isinstance(tags, Mapping):
        return {str(key): str(value) for key, value in tags.items()}
    return {tag["Key"]: tag["Value"] for tag in tags}
