"""The notifier: writes to people what the event bus says."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.function import EventFunction, Platform
from infra.constructs.topics import Topics

SOURCE = "trainwarden"
# Rule id → what people hear of; the data is matched in the event's detail.
TOLD: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Verdicts": (["Verdict Changed"], {"status": ["IssuesFound", "Error"], "muted": [False]}),
    "Others": (["Action Taken", "Data Lost"], {"muted": [False]}),
    "Misunderstood": (["Job Opened"], {"problem_count": [{"numeric": [">", 0]}]}),
}


def named_topics(scope: Construct) -> str:
    """Return the ARN pattern of topics that a job may name in ``trainwarden:notify``."""
    return Stack.of(scope).format_arn(service="sns", resource="trainwarden-*")


class Notifier(Construct):
    """E-mail and text messages through the topic of verdicts."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        topics: Topics,
        bus: events.IEventBus,
    ) -> None:
        super().__init__(scope, id_)
        made = EventFunction(
            self,
            "Handler",
            platform=platform,
            package="notifier",
            timeout=Duration.seconds(30),
            environment={"TOPIC_ARN": topics.verdicts.topic_arn},
        )
        self.function = made.function
        topics.grant_tell(made.role)
        made.role.add_to_principal_policy(
            iam.PolicyStatement(actions=["sns:Publish"], resources=[named_topics(self)])
        )
        for rule, (detail_types, data) in TOLD.items():
            events.Rule(
                self,
                rule,
                event_bus=bus,
                description=f"Tell people: {', '.join(detail_types)}",
                event_pattern=events.EventPattern(
                    source=[SOURCE], detail_type=detail_types, detail={"data": data}
                ),
                targets=[made.target()],
            )
