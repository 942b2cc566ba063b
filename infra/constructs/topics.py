"""Whom we tell: the topic of verdicts, the topic of alarms, and the key that encrypts both."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.config import Config

EVERYBODY = "all"  # value of the message attribute ``to`` that reaches every subscription


class Topics(Construct):
    """Verdicts go to subscribers by the message attribute ``to``, alarms to all of theirs.

    Attributes:
        verdicts: Messages about jobs.
        alarms: Messages about Trainwarden itself.
    """

    def __init__(self, scope: Construct, id_: str, *, config: Config) -> None:
        super().__init__(scope, id_)
        self.key = kms.Key(
            self,
            "Key",
            description="Encrypts Trainwarden's messages",
            enable_key_rotation=True,
            pending_window=Duration.days(7),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.verdicts = self._topic("Verdicts", "Trainwarden")
        for address in config.emails:
            self.verdicts.add_subscription(
                subscriptions.EmailSubscription(address, filter_policy=_addressed_to(address))
            )
        for number in config.sms:
            self.verdicts.add_subscription(
                subscriptions.SmsSubscription(number, filter_policy=_addressed_to(number))
            )
        self.alarms = self._topic("Alarms", "Trainwarden alarms")
        for address in config.alarm_emails or config.emails:
            self.alarms.add_subscription(subscriptions.EmailSubscription(address))
        # The key aws/sns cannot be used by CloudWatch, so the topics have one of their own.
        self.key.grant(
            iam.ServicePrincipal("cloudwatch.amazonaws.com"), "kms:Decrypt", "kms:GenerateDataKey"
        )

    def grant_tell(self, role: iam.IRole) -> None:
        """Allow to publish to the topic of verdicts."""
        for actions, resource in (
            (["sns:Publish"], self.verdicts.topic_arn),
            (["kms:Decrypt", "kms:GenerateDataKey"], self.key.key_arn),
        ):
            role.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[resource]))

    def _topic(self, id_: str, display_name: str) -> sns.Topic:
        return sns.Topic(
            self, id_, master_key=self.key, enforce_ssl=True, display_name=display_name
        )


def _addressed_to(endpoint: str) -> dict[str, sns.SubscriptionFilter]:
    return {"to": sns.SubscriptionFilter.string_filter(allowlist=[EVERYBODY, endpoint])}
