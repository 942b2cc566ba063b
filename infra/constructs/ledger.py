"""The ledger: one table of jobs, verdicts, findings, actions and outgoing events."""

from __future__ import annotations

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import Config
from infra.constructs.inbox import removal_policy

OPEN_JOBS = "open"  # sparse index: only jobs that are not closed carry its key


class Ledger(Construct):
    """A plain table, not a global one: the ledger's version check needs one writing region.

    Attributes:
        table: The table, with a stream of new images and a time to live.
    """

    def __init__(self, scope: Construct, id_: str, *, config: Config) -> None:
        super().__init__(scope, id_)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=config.point_in_time_recovery
            ),
            stream=dynamodb.StreamViewType.NEW_IMAGE,
            time_to_live_attribute="expires_at",
            removal_policy=removal_policy(config),
        )
        self.table.add_global_secondary_index(
            index_name=OPEN_JOBS,
            partition_key=_text("open"),
            sort_key=_text("pk"),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )

    def grant_commit(self, role: iam.IRole) -> None:
        """Allow to read a job's record, and what a transaction is checked against."""
        self._allow(role, ["GetItem", "PutItem", "UpdateItem"], self.table.table_arn)

    def grant_entries(self, role: iam.IRole) -> None:
        """Allow to list what was recorded of a job."""
        self._allow(role, ["Query"], self.table.table_arn)

    def grant_open_jobs(self, role: iam.IRole) -> None:
        """Allow to ask which jobs are open."""
        self._allow(role, ["Query"], f"{self.table.table_arn}/index/{OPEN_JOBS}")

    def _allow(self, role: iam.IRole, actions: list[str], resource: str) -> None:
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=[f"dynamodb:{action}" for action in actions], resources=[resource]
            )
        )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
