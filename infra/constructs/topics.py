"""Whom we tell: the topic of verdicts, the topic of alarms, and the key that encrypts both."""

from __future__ import annotations

from aws_cdk import Aws, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import Config
from infra.constructs.alarms import Alarms, dead_letters

EVERYBODY = "all"  # value of the message attribute ``to`` that reaches every subscription
CLOUDWATCH = iam.ServicePrincipal("cloudwatch.amazonaws.com")


class Topics(Construct):
    """Verdicts go to subscribers by the message attribute ``to``, alarms to all of theirs.

    Attributes:
        verdicts: Messages about jobs.
        alarms: Makes alarms about Trainwarden itself that tell the people who run it.
    """

    def __init__(self, scope: Construct, id_: str, *, config: Config) -> None:
        super().__init__(scope, id_)
        self._key = self._encrypt()
        self.verdicts = self._topic("Verdicts", "Trainwarden")
        about_us = self._topic("Alarms", "Trainwarden alarms")
        about_us.add_to_resource_policy(_cloudwatch_may_publish(about_us))
        self.alarms = Alarms(about_us)
        lost = dead_letters(self, "DeadLetters", self.alarms, "Messages to subscribers")
        for address in config.emails:
            self._subscribe(self.verdicts, address, lost, _addressed_to(address))
        for number in config.sms:
            self._subscribe(self.verdicts, number, lost, _addressed_to(number))
        for address in config.alarm_emails or config.emails:
            self._subscribe(about_us, address, lost)

    def grant_tell(self, role: iam.IRole) -> None:
        """Allow to publish to the topic of verdicts."""
        for actions, resource in (
            (["sns:Publish"], self.verdicts.topic_arn),
            (["kms:Decrypt", "kms:GenerateDataKey"], self._key.key_arn),
        ):
            role.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[resource]))

    def _subscribe(
        self,
        topic: sns.Topic,
        endpoint: str,
        lost: sqs.IQueue,
        only: dict[str, sns.SubscriptionFilter] | None = None,
    ) -> None:
        """Subscribe by hand: CDK's class for text messages drops the dead-letter queue."""
        phone = endpoint.startswith("+")
        sns.Subscription(
            topic,
            endpoint,
            topic=topic,
            endpoint=endpoint,
            protocol=sns.SubscriptionProtocol.SMS if phone else sns.SubscriptionProtocol.EMAIL,
            filter_policy=only,
            dead_letter_queue=lost,
        )

    def _encrypt(self) -> kms.Key:
        """Make a key of our own: CloudWatch cannot use ``aws/sns``."""
        key = kms.Key(
            self,
            "Key",
            description="Encrypts Trainwarden's messages",
            enable_key_rotation=True,
            pending_window=Duration.days(7),
            removal_policy=RemovalPolicy.DESTROY,
        )
        key.grant(CLOUDWATCH, "kms:Decrypt", "kms:GenerateDataKey")
        return key

    def _topic(self, id_: str, display_name: str) -> sns.Topic:
        return sns.Topic(
            self, id_, master_key=self._key, enforce_ssl=True, display_name=display_name
        )


def _addressed_to(endpoint: str) -> dict[str, sns.SubscriptionFilter]:
    return {"to": sns.SubscriptionFilter.string_filter(allowlist=[EVERYBODY, endpoint])}


def _cloudwatch_may_publish(topic: sns.ITopic) -> iam.PolicyStatement:
    """Say what the default policy would: enforcing TLS replaces that one."""
    return iam.PolicyStatement(
        principals=[CLOUDWATCH],
        actions=["sns:Publish"],
        resources=[topic.topic_arn],
        conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
    )
