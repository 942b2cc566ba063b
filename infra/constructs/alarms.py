"""Alarms about Trainwarden itself, and the queues that keep what could not be handled."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct


class Alarms:
    """Makes alarms that tell the people who run Trainwarden.

    Attributes:
        all: Every alarm made so far, for the dashboard.
    """

    def __init__(self, topic: sns.ITopic) -> None:
        self._action = actions.SnsAction(topic)
        self.all: list[cloudwatch.IAlarm] = []

    def when(
        self,
        metric: cloudwatch.IMetric,
        scope: Construct,
        id_: str,
        description: str,
        *,
        reaches: float = 1,
    ) -> None:
        """Tell once ``metric`` is at least ``reaches`` in one of its periods."""
        alarm = cloudwatch.Alarm(
            scope,
            f"{id_}Alarm",
            metric=metric,
            threshold=reaches,
            evaluation_periods=1,
            comparison_operator=(cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD),
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
        alarm.add_alarm_action(self._action)
        self.all.append(alarm)


def dead_letters(scope: Construct, id_: str, alarms: Alarms, what: str) -> sqs.Queue:
    """Make a queue that keeps what could not be handled for 14 days, with its alarm."""
    queue = sqs.Queue(scope, id_, enforce_ssl=True, retention_period=Duration.days(14))
    alarms.when(
        queue.metric_approximate_number_of_messages_visible(statistic="Maximum"),
        queue,
        "Depth",
        f"{what} could not be handled and lie in a dead-letter queue.",
    )
    return queue
