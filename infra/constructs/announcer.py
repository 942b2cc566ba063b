"""The announcer: sends what the ledger's stream brings to the event bus."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk.aws_lambda_event_sources import DynamoEventSource, SqsDlq
from constructs import Construct

from infra.constructs.alarms import dead_letters
from infra.constructs.function import Platform, PythonFunction
from infra.constructs.ledger import Ledger


class Announcer(Construct):
    """Alerts leave by the table's stream alone, so that a crash neither loses nor invents one."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        ledger: Ledger,
        bus: events.IEventBus,
    ) -> None:
        super().__init__(scope, id_)
        made = PythonFunction(
            self,
            "Handler",
            platform=platform,
            package="announcer",
            timeout=Duration.seconds(30),
            environment={"BUS_NAME": bus.event_bus_name},
        )
        self.function = made.function
        lost = dead_letters(self, "DeadLetters", platform.alarms, "Events of the ledger")
        has_events = {"dynamodb": {"NewImage": {"outbox": {"S": lambda_.FilterRule.exists()}}}}
        self.function.add_event_source(
            DynamoEventSource(
                ledger.table,
                starting_position=lambda_.StartingPosition.TRIM_HORIZON,
                batch_size=25,
                bisect_batch_on_error=True,
                report_batch_item_failures=True,
                retry_attempts=50,  # with back-off: outlasts an outage of the bus of minutes
                on_failure=SqsDlq(lost),
                filters=[lambda_.FilterCriteria.filter(has_events)],
            )
        )
        bus.grant_put_events_to(made.role)
