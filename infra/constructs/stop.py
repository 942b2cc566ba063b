"""Stopping a job: authorize, stop, confirm, record; never a job that is not marked.

Beside it, asking a job for detail, by the same function: it writes control documents.

The tag is asked for twice: by the policy engine in the function, and by an explicit Deny in the
role that stops, which no bug of ours can talk its way around.
"""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.config import Config
from infra.constructs.function import LOG_RETENTION, MAX_EVENT_AGE, EventFunction, Platform
from infra.constructs.judging import Judging
from infra.constructs.notifier import SOURCE
from infra.constructs.stop_flow import StopFlow
from infra.constructs.training import never_without_the_tag, training_jobs


class Stop(Construct):
    """The state machine that stops jobs, and the rule that starts it.

    Attributes:
        machine: Takes a whole ``Verdict Changed`` event.
        role: What the machine may do.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        judging: Judging,
        bus: events.IEventBus,
    ) -> None:
        super().__init__(scope, id_)
        made = EventFunction(
            self,
            "Handler",
            platform=platform,
            package="stopper",
            timeout=Duration.seconds(30),
            environment=judging.environment,
        )
        self.function = made.function
        judging.grant_fold(made.role)
        judging.grant_look(made.role)
        judging.ledger.grant_entries(made.role)
        judging.inbox.grant_control(made.role)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
        self.role.add_to_principal_policy(never_without_the_tag(platform.config))
        self.machine = self._machine(platform.config)
        stop = targets.SfnStateMachine(
            self.machine, dead_letter_queue=made.dead_letters, max_event_age=MAX_EVENT_AGE
        )
        self._on("Requested", bus, "A verdict asks to stop a job that allows it", "stop", stop)
        capture = made.target(_operation("capture"))
        self._on("MoreRequested", bus, "A verdict asks a job for detail", "capture", capture)
        platform.alarms.when(
            self.machine.metric_failed(period=Duration.minutes(5)),
            self,
            "Failed",
            "A request to stop a job ended without a record of what became of it.",
        )

    def _on(
        self, id_: str, bus: events.IEventBus, description: str, what: str, do: events.IRuleTarget
    ) -> None:
        """Do something about a verdict that asks for it."""
        events.Rule(
            self,
            id_,
            event_bus=bus,
            description=description,
            event_pattern=events.EventPattern(
                source=[SOURCE],
                detail_type=["Verdict Changed"],
                detail={"data": {f"{what}_requested": [True]}},
            ),
            targets=[do],
        )

    def _machine(self, config: Config) -> sfn.StateMachine:
        flow = StopFlow(self, "Flow", stopper=self.function, training_jobs=training_jobs(self))
        return sfn.StateMachine(
            self,
            "Machine",
            comment="Stops a training job on a verdict: authorize, stop, confirm, record",
            query_language=sfn.QueryLanguage.JSONATA,
            definition_body=sfn.DefinitionBody.from_chainable(flow.start),
            role=self.role,
            timeout=Duration.minutes(10),
            tracing_enabled=True,
            logs=sfn.LogOptions(
                destination=logs.LogGroup(
                    self,
                    "Logs",
                    retention=LOG_RETENTION[config.log_days],
                    removal_policy=RemovalPolicy.DESTROY,
                ),
                level=sfn.LogLevel.ALL,
                include_execution_data=True,
            ),
        )


def _operation(name: str) -> events.RuleTargetInput:
    """Return what the function is given of a ``Verdict Changed`` event."""
    data = "$.detail.data"
    return events.RuleTargetInput.from_object(
        {
            "operation": name,
            "job": events.EventField.from_path(f"{data}.job"),
            "rule": events.EventField.from_path(f"{data}.rule"),
        }
    )
