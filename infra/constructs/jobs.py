"""What opens, closes and looks after jobs: SageMaker's events, and the clock."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from constructs import Construct

from infra.constructs.function import EventFunction, Platform
from infra.constructs.judging import Judging

STATE_CHANGE = "SageMaker Training Job State Change"


class Jobs(Construct):
    """Opens and closes jobs as SageMaker says they start and end."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        judging: Judging,
    ) -> None:
        super().__init__(scope, id_)
        made = EventFunction(
            self,
            "Handler",
            platform=platform,
            package="jobs",
            timeout=Duration.seconds(60),
            environment=judging.environment,
        )
        self.function = made.function
        judging.grant_fold(made.role)
        judging.grant_ask(made.role)
        judging.grant_look(made.role)
        events.Rule(
            self,
            "StateChanges",
            description="Training jobs start and end",
            event_pattern=events.EventPattern(source=["aws.sagemaker"], detail_type=[STATE_CHANGE]),
            targets=[made.target()],
        )


class Sweeper(Construct):
    """Each minute: stalled jobs, objects missing past their deadline, jobs without data."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        judging: Judging,
    ) -> None:
        super().__init__(scope, id_)
        made = EventFunction(
            self,
            "Handler",
            platform=platform,
            package="sweeper",
            timeout=Duration.seconds(55),
            retries=0,  # the next minute is the retry
            environment=judging.environment,
        )
        self.function = made.function
        judging.grant_fold(made.role)
        judging.grant_ask(made.role)
        judging.grant_look(made.role)
        judging.ledger.grant_open_jobs(made.role)
        events.Rule(
            self,
            "EachMinute",
            description="Look after open jobs",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[made.target()],
        )
