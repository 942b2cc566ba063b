"""SageMaker, as far as trainwarden reads it. Stopping a job is the state machine's business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from trainwarden.store.aws_errors import code_of, translated
from trainwarden.store.ports import TrainingJob

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient


class SageMakerJobs:
    """``TrainingJobs`` over the SageMaker API.

    Args:
        client: A boto3 SageMaker client.
    """

    def __init__(self, client: SageMakerClient) -> None:
        self._client = client

    def describe(self, name: str) -> TrainingJob | None:
        """Describe the job of exactly this name with all of its tags; None if there is none.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever, such as access denied.
        """
        with translated(
            f"describe training job {name}",
            permission="sagemaker:DescribeTrainingJob and sagemaker:ListTags",
        ):
            try:
                # One dict for all: the stub's type leaves out what a job may lack.
                found = cast(
                    "dict[str, Any]", self._client.describe_training_job(TrainingJobName=name)
                )
                tags = self._tags(found["TrainingJobArn"])
            except ClientError as exc:
                if _is_missing(exc):
                    return None
                raise
        return TrainingJob(
            name=found["TrainingJobName"],
            arn=found["TrainingJobArn"],
            status=found["TrainingJobStatus"],
            secondary_status=found.get("SecondaryStatus", ""),
            tags=tags,
            hyperparameters=found.get("HyperParameters", {}),
            debug_hook=found.get("DebugHookConfig", {}),
            debug_rules=tuple(found.get("DebugRuleConfigurations", ())),
            failure=found.get("FailureReason", ""),
            instance=found.get("ResourceConfig", {}).get("InstanceType", ""),
        )

    def _tags(self, arn: str) -> dict[str, str]:
        tags: dict[str, str] = {}
        request: dict[str, str] = {"ResourceArn": arn}
        while True:
            page = self._client.list_tags(**request)  # type: ignore[arg-type]  # a str for a str
            tags.update({tag["Key"]: tag["Value"] for tag in page.get("Tags", ())})
            if not page.get("NextToken"):
                return tags
            request["NextToken"] = page["NextToken"]


def _is_missing(exc: ClientError) -> bool:
    """Tell "no such job"; the API documents ResourceNotFound and answers ValidationException."""
    message = str(exc.response.get("Error", {}).get("Message", ""))
    return code_of(exc) in {"ResourceNotFound", "ResourceNotFoundException"} or (
        code_of(exc) == "ValidationException" and "not found" in message.lower()
    )
