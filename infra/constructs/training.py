"""What training jobs may do here, and what we may do to them."""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import Config
from infra.constructs.inbox import PREFIX, Inbox, list_jobs

STOP_TAG = "trainwarden:stop"
STOP_ALLOWED = "allow"
_WRITTEN = [f"{PREFIX}*/{name}" for name in ("manifest.tw", "steps/*", "end/*", "tensors/*")]


class TrainingAccess(Construct):
    """A managed policy to attach to the execution roles of training jobs.

    Attributes:
        policy: Allows to write what the hook writes below ``jobs/``, but not the control document,
            through which jobs are asked to stop; to read the control document, to see what an
            earlier start of the job wrote (its numbers go on from there), to find the bucket.
    """

    def __init__(self, scope: Construct, id_: str, *, inbox: Inbox) -> None:
        super().__init__(scope, id_)
        bucket = inbox.bucket
        self.policy = iam.ManagedPolicy(
            self,
            "Policy",
            description="Lets a training job send what it captured to Trainwarden",
            statements=[
                _allow(["s3:PutObject"], *map(bucket.arn_for_objects, _WRITTEN)),
                _allow(
                    ["s3:GetObject"],
                    bucket.arn_for_objects(f"{PREFIX}*/control.json"),
                    bucket.arn_for_objects(f"{PREFIX}*/manifest.tw"),
                ),
                list_jobs(bucket),
                _allow(["ssm:GetParameter"], inbox.parameter.parameter_arn),
            ],
        )


def training_jobs(scope: Construct) -> str:
    """Return the ARN pattern of all training jobs of the account and region."""
    return Stack.of(scope).format_arn(
        service="sagemaker", resource="training-job", resource_name="*"
    )


def describe_training_jobs() -> iam.PolicyStatement:
    """Allow to read training jobs and their tags."""
    return _allow(
        ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags"],
        f"arn:{Aws.PARTITION}:sagemaker:{Aws.REGION}:{Aws.ACCOUNT_ID}:training-job/*",
    )


def never_without_the_tag(config: Config) -> iam.PolicyStatement:
    """Deny to stop any job that does not carry the tag; in a dry run, any job at all.

    A condition that negates also holds where the job has no such tag.
    """
    unless = {"StringNotEquals": {f"aws:ResourceTag/{STOP_TAG}": STOP_ALLOWED}}
    return iam.PolicyStatement(
        sid="NeverStopWithoutTheTag",
        effect=iam.Effect.DENY,
        actions=["sagemaker:StopTrainingJob"],
        resources=["*"],
        conditions={} if config.dry_run else unless,
    )


def _allow(actions: list[str], *resources: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=actions, resources=list(resources))
