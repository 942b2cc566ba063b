"""Our one way to make a Lambda function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import packing
from infra.config import Config
from infra.constructs import bundling
from infra.constructs.alarms import Alarms, dead_letters
from infra.constructs.layers import runtime_of

NAMESPACE = "Trainwarden"
MAX_EVENT_AGE = Duration.hours(1)
LOG_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}


@dataclass(frozen=True)
class Platform:
    """What all functions of a deployment share."""

    config: Config
    layers: Sequence[lambda_.ILayerVersion]
    alarms: Alarms


class PythonFunction(Construct):
    """A function from ``lambdas/<package>`` with a role, a log group and an alarm of its own.

    Attributes:
        function: The function; its role may write its own logs and traces, nothing else yet.
    """

    def __init__(  # noqa: PLR0913 (keyword-only, each one a setting of the function)
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        package: str,
        timeout: Duration,
        environment: Mapping[str, str],
        memory_mb: int = 512,
        code: lambda_.Code | None = None,
        traced: bool = True,
        reserved: int = 0,
    ) -> None:
        super().__init__(scope, id_)
        config = platform.config
        runtime, architecture = runtime_of(config)
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=LOG_RETENTION[config.log_days],
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=runtime,
            architecture=architecture,
            handler=f"lambdas.{package}.handler.handler",
            code=code or code_of(package, config),
            layers=list(platform.layers),
            role=role,
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE if traced else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=reserved or None,
            timeout=timeout,
            memory_size=memory_mb,
            environment={
                "POWERTOOLS_SERVICE_NAME": package,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                **environment,
            },
        )
        platform.alarms.when(
            self.function.metric_errors(period=Duration.minutes(5)),
            self,
            "Errors",
            f"The {package} function fails.",
        )

    @property
    def role(self) -> iam.IRole:
        """The role the function runs under."""
        role = self.function.role
        assert role is not None  # noqa: S101 (for the type checker: we passed one)
        return role


class EventFunction(PythonFunction):
    """A function that EventBridge invokes; what it cannot handle lands in its dead-letter queue.

    Attributes:
        dead_letters: Events that could not be delivered, and invocations that failed for good.
    """

    def __init__(
        self, scope: Construct, id_: str, *, platform: Platform, retries: int = 2, **settings: Any
    ) -> None:
        super().__init__(scope, id_, platform=platform, **settings)
        package = settings["package"]
        self.dead_letters = dead_letters(
            self, "DeadLetters", platform.alarms, f"Events for the {package} function"
        )
        self._retries = retries
        self.function.configure_async_invoke(
            on_failure=destinations.SqsDestination(self.dead_letters),
            retry_attempts=retries,
            max_event_age=MAX_EVENT_AGE,
        )

    def target(self, event: events.RuleTargetInput | None = None) -> targets.LambdaFunction:
        """Return the function as a rule's target; it is given ``event`` or the whole one."""
        return targets.LambdaFunction(
            self.function,
            event=event,
            dead_letter_queue=self.dead_letters,
            retry_attempts=self._retries,
            max_event_age=MAX_EVENT_AGE,
        )


def custom_metric(name: str, service: str, *, statistic: str = "Sum") -> cloudwatch.Metric:
    """Return a metric that a function writes into its log in EMF."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map={"service": service},
        statistic=statistic,
        period=Duration.minutes(5),
    )


def code_of(package: str, config: Config, rules: Path | None = None) -> lambda_.Code:
    """Take ``lambdas/shared`` and ``lambdas/<package>`` alone, and ``rules``, into the asset."""
    wanted = packing.function(package)
    modules = packing.custom_rules(rules) if rules else []

    def build(output: Path) -> None:
        packing.copy(wanted, packing.ROOT, output)
        if rules:
            packing.copy(modules, rules, output / "rules")
        packing.add_bytecode(output, config.python, runs_in="/var/task")

    bytecode = f"bytecode={packing.interpreter(config.python) is not None}"
    return bundling.asset(
        packing.LAMBDAS,
        build,
        package,
        config.python,
        bytecode,
        packing.digest(wanted),
        packing.digest(modules, rules) if rules else "",
    )
