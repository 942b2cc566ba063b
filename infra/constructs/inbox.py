"""The bucket jobs write to, and the queue of notices about what they wrote."""

from __future__ import annotations

from aws_cdk import Aws, Duration, RemovalPolicy, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.config import Config
from infra.constructs.alarms import Alarms, dead_letters

PREFIX = "jobs/"
SUFFIX = ".tw"  # of every object that the evaluator must hear of
PARAMETER = "/trainwarden/bucket"  # where hooks look the bucket's name up
LARGEST_STEPS_OBJECT = Size.mebibytes(8)  # the wire format's limit: what is larger is raw tensors


class Inbox(Construct):
    """S3 is the inbox; a notice is only a hint that something new lies there.

    Attributes:
        bucket: Everything jobs write, below ``jobs/``.
        notices: One message for each object whose key ends in ``.tw``.
        parameter: Holds the bucket's name.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: Config,
        alarms: Alarms,
        visibility_timeout: Duration,
    ) -> None:
        super().__init__(scope, id_)
        self.notices = self._queue(alarms, visibility_timeout)
        self.bucket = self._bucket(config)
        self._send_notices()
        self.parameter = ssm.StringParameter(
            self,
            "BucketName",
            parameter_name=PARAMETER,
            string_value=self.bucket.bucket_name,
            description="Bucket that training jobs write to",
        )

    def grant_read(self, role: iam.IRole) -> None:
        """Allow to read what jobs wrote, and to see that something is not there."""
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"], resources=[self.bucket.arn_for_objects(f"{PREFIX}*")]
            )
        )
        role.add_to_principal_policy(list_jobs(self.bucket))

    def grant_control(self, role: iam.IRole) -> None:
        """Allow to write control documents, through which training loops are asked to stop."""
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects(f"{PREFIX}*/control.json")],
            )
        )

    def _queue(self, alarms: Alarms, visibility_timeout: Duration) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            "Notices",
            enforce_ssl=True,
            visibility_timeout=visibility_timeout,
            dead_letter_queue=sqs.DeadLetterQueue(
                max_receive_count=5,
                queue=dead_letters(self, "DeadLetters", alarms, "Notices about saved steps"),
            ),
        )
        alarms.when(
            queue.metric_approximate_age_of_oldest_message(statistic="Maximum"),
            self,
            "OldestNotice",
            "Saved steps have waited for the evaluator for more than ten minutes.",
            reaches=600,
        )
        return queue

    def _bucket(self, config: Config) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal_policy(config),
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="steps", prefix=PREFIX, expiration=Duration.days(config.steps_days)
                ),
                s3.LifecycleRule(
                    id="tensors",
                    prefix=PREFIX,
                    object_size_greater_than=LARGEST_STEPS_OBJECT.to_bytes(),
                    expiration=Duration.days(config.tensors_days),
                ),
                s3.LifecycleRule(
                    id="uploads", abort_incomplete_multipart_upload_after=Duration.days(1)
                ),
            ],
        )
        # CloudFormation declares this number as text and warns otherwise.
        _l1(bucket).add_property_override(
            "LifecycleConfiguration.Rules.1.ObjectSizeGreaterThan",
            str(LARGEST_STEPS_OBJECT.to_bytes()),
        )
        return bucket

    def _send_notices(self) -> None:
        """Send a notice for each ``.tw`` object.

        By the bucket's own property: CDK's ``add_event_notification`` would add a hidden function.
        The queue's policy cannot name the bucket, which names the queue, so it names the account.
        """
        permission = self.notices.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.notices.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        rules = [
            s3.CfnBucket.FilterRuleProperty(name="prefix", value=PREFIX),
            s3.CfnBucket.FilterRuleProperty(name="suffix", value=SUFFIX),
        ]
        bucket = _l1(self.bucket)
        bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            queue_configurations=[
                s3.CfnBucket.QueueConfigurationProperty(
                    event="s3:ObjectCreated:*",
                    queue=self.notices.queue_arn,
                    filter=s3.CfnBucket.NotificationFilterProperty(
                        s3_key=s3.CfnBucket.S3KeyFilterProperty(rules=rules)
                    ),
                )
            ]
        )
        # S3 sends a test message when the notification is made; without the policy that fails.
        assert permission.policy_dependable is not None  # noqa: S101 (for the type checker)
        bucket.node.add_dependency(permission.policy_dependable)


def _l1(bucket: s3.Bucket) -> s3.CfnBucket:
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)  # noqa: S101 (for the type checker)
    return resource


def removal_policy(config: Config) -> RemovalPolicy:
    """Say what becomes of bucket and table with the stack; a failed first deploy keeps nothing."""
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if config.retain else RemovalPolicy.DESTROY


def list_jobs(bucket: s3.IBucket) -> iam.PolicyStatement:
    """Allow to list below ``jobs/``.

    *IfExists*: S3 asks for this permission without any prefix when an object that somebody GETs is
    not there, and answers 403 instead of 404 if it is missing.
    """
    return iam.PolicyStatement(
        actions=["s3:ListBucket"],
        resources=[bucket.bucket_arn],
        conditions={"StringLikeIfExists": {"s3:prefix": f"{PREFIX}*"}},
    )
