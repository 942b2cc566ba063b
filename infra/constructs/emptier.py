"""Empties the bucket before it is deleted; only where the configuration keeps nothing."""

from __future__ import annotations

from aws_cdk import CustomResource, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.function import Platform, PythonFunction

TIMEOUT = Duration.minutes(15)


class Emptier(Construct):
    """A custom resource whose deletion deletes every object of the bucket."""

    def __init__(
        self, scope: Construct, id_: str, *, platform: Platform, bucket: s3.Bucket
    ) -> None:
        super().__init__(scope, id_)
        made = PythonFunction(
            self,
            "Handler",
            platform=platform,
            package="emptier",
            timeout=TIMEOUT,
            environment={},
        )
        for action, resource in (
            ("s3:ListBucket", bucket.bucket_arn),
            ("s3:DeleteObject", bucket.arn_for_objects("*")),
        ):
            made.role.add_to_principal_policy(
                iam.PolicyStatement(actions=[action], resources=[resource])
            )
        contents = CustomResource(
            self,
            "Contents",
            resource_type="Custom::BucketContents",
            service_token=made.function.function_arn,
            service_timeout=TIMEOUT,
            properties={"BucketName": bucket.bucket_name},
        )
        contents.node.add_dependency(bucket)
