"""The one stack: wires constructs together and owns nothing else."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from infra import nag
from infra.config import Config
from infra.constructs.announcer import Announcer
from infra.constructs.custom_rules import CustomRules
from infra.constructs.dashboard import Dashboard
from infra.constructs.emptier import Emptier
from infra.constructs.evaluator import VISIBILITY_TIMEOUT, Evaluator
from infra.constructs.function import Platform
from infra.constructs.inbox import Inbox
from infra.constructs.jobs import Jobs, Sweeper
from infra.constructs.judging import Judging
from infra.constructs.layers import Layers
from infra.constructs.ledger import Ledger
from infra.constructs.notifier import SOURCE, Notifier
from infra.constructs.stop import Stop
from infra.constructs.topics import Topics
from infra.constructs.training import TrainingAccess


class TrainwardenStack(Stack):
    """Everything one account and region needs."""

    def __init__(self, scope: Construct, id_: str, *, config: Config, **kwargs: Any) -> None:
        super().__init__(
            scope,
            id_,
            description="Trainwarden: watches training jobs and says early what went wrong",
            **kwargs,
        )
        self.config = config
        self.topics = Topics(self, "Topics", config=config)
        self.alarms = self.topics.alarms
        self.inbox = Inbox(
            self,
            "Inbox",
            config=config,
            alarms=self.alarms,
            visibility_timeout=VISIBILITY_TIMEOUT,
        )
        self.ledger = Ledger(self, "Ledger", config=config)
        self.bus = events.EventBus(self, "Bus", description="What Trainwarden found and did")
        if config.archive_days:
            self.bus.archive(
                "Archive",
                event_pattern=events.EventPattern(source=[SOURCE]),
                retention=Duration.days(config.archive_days),
            )
        self.access = TrainingAccess(self, "TrainingAccess", inbox=self.inbox)
        self._functions()
        self._outputs()
        nag.acknowledge(self)

    def _functions(self) -> None:
        layers = Layers(self, "Layers", config=self.config)
        platform = Platform(self.config, layers.all, self.alarms)
        self.custom_rules = (
            CustomRules(self, "CustomRules", platform=platform)
            if self.config.custom_rules
            else None
        )
        judging = Judging(self.config, self.inbox, self.ledger, self.custom_rules)
        judges = self.custom_rules.known_to(platform) if self.custom_rules else platform
        self.evaluator = Evaluator(self, "Evaluator", platform=judges, judging=judging)
        self.jobs = Jobs(self, "Jobs", platform=judges, judging=judging)
        self.sweeper = Sweeper(self, "Sweeper", platform=judges, judging=judging)
        self.stop = Stop(self, "Stop", platform=judges, judging=judging, bus=self.bus)
        self.announcer = Announcer(
            self, "Announcer", ledger=self.ledger, platform=platform, bus=self.bus
        )
        self.notifier = Notifier(
            self, "Notifier", topics=self.topics, platform=platform, bus=self.bus
        )
        if not self.config.retain:
            Emptier(self, "Emptier", platform=platform, bucket=self.inbox.bucket)
        Dashboard(
            self,
            "Dashboard",
            notices=self.inbox.notices,
            functions={
                "evaluator": self.evaluator.function,
                "announcer": self.announcer.function,
                "jobs": self.jobs.function,
                "sweeper": self.sweeper.function,
                "notifier": self.notifier.function,
                "stopper": self.stop.function,
                **({"custom rules": self.custom_rules.function} if self.custom_rules else {}),
            },
            alarms=self.alarms.all,
        )

    def _outputs(self) -> None:
        """What people and the command line look up."""
        for name, value in {
            "BucketName": self.inbox.bucket.bucket_name,
            "TableName": self.ledger.table.table_name,
            "BusName": self.bus.event_bus_name,
            "TopicArn": self.topics.verdicts.topic_arn,
            "TrainingPolicyArn": self.access.policy.managed_policy_arn,
            "StopStateMachineArn": self.stop.machine.state_machine_arn,
            "RuntimeVersion": f"python{self.config.python}-{self.config.architecture}",
        }.items():
            CfnOutput(self, name, value=value)
