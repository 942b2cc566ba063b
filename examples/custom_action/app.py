"""A custom action: a rule on Trainwarden's bus with a function of our own as its target.

``npx aws-cdk@2 deploy --app "python examples/custom_action/app.py"`` with the context
``-c bus=NAME`` (the output ``BusName`` of the Trainwarden stack) and, if verdicts shall be posted,
``-c webhook=/parameter/name`` (an SSM SecureString that holds the URL).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from aws_cdk import App, Duration, RemovalPolicy, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from constructs import Construct

FUNCTION = Path(__file__).parent / "function"


class CustomActionStack(Stack):
    """Calls ``function/handler.py`` whenever a rule has found something in a job.

    Args:
        scope: The app.
        id_: Name of the stack.
        bus_name: Trainwarden's bus, the output ``BusName`` of its stack.
        webhook_parameter: Name of an SSM SecureString that holds the URL to post to; empty: the
            verdict is only logged.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        bus_name: str,
        webhook_parameter: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, id_, **kwargs)
        self.undelivered = sqs.Queue(
            self, "Undelivered", enforce_ssl=True, retention_period=Duration.days(14)
        )
        self.function = self._function(webhook_parameter)
        events.Rule(
            self,
            "Issues",
            description="Trainwarden found something in a training job",
            event_bus=events.EventBus.from_event_bus_name(self, "Bus", bus_name),
            event_pattern=events.EventPattern(
                source=["trainwarden"],
                detail_type=["Verdict Changed"],
                detail={
                    "metadata": {"version": ["1"]},
                    "data": {"status": ["IssuesFound", "Error"], "muted": [False]},
                },
            ),
            targets=[
                targets.LambdaFunction(
                    self.function,
                    dead_letter_queue=self.undelivered,
                    retry_attempts=10,
                    max_event_age=Duration.hours(2),
                )
            ],
        )

    def _function(self, webhook_parameter: str) -> lambda_.Function:
        """Make the function; its role may write its log and read that one parameter."""
        log_group = logs.LogGroup(
            self,
            "Logs",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log_group.grant_write(role)
        function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(FUNCTION), exclude=["__pycache__"]),
            role=role,
            log_group=log_group,
            timeout=Duration.seconds(20),
            environment={"WEBHOOK_PARAMETER": webhook_parameter},
            dead_letter_queue=self.undelivered,
        )
        if webhook_parameter:
            ssm.StringParameter.from_secure_string_parameter_attributes(
                self, "Webhook", parameter_name=webhook_parameter
            ).grant_read(role)
        return function


def main() -> None:
    """Synthesize the stack."""
    app = App()
    bus = app.node.try_get_context("bus")
    if not bus:
        sys.exit(
            "Which bus? Pass -c bus=NAME; this prints the name:\n"
            "  aws cloudformation describe-stacks --stack-name Trainwarden --output text \\\n"
            """    --query "Stacks[0].Outputs[?OutputKey=='BusName'].OutputValue\""""
        )
    webhook = app.node.try_get_context("webhook") or ""
    CustomActionStack(app, "TrainwardenCustomAction", bus_name=bus, webhook_parameter=webhook)
    app.synth()


if __name__ == "__main__":
    main()
