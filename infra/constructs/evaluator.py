"""The evaluator: folds what jobs saved, a batch of notices at a time."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk.aws_lambda_event_sources import SqsEventSource
from constructs import Construct

from infra.constructs.function import Platform, PythonFunction, custom_metric
from infra.constructs.judging import Judging

PACKAGE = "evaluator"
TIMEOUT = Duration.seconds(30)
# As AWS advises, so that no notice comes back while its batch is still being worked on.
VISIBILITY_TIMEOUT = Duration.seconds(6 * TIMEOUT.to_seconds())


class Evaluator(Construct):
    """Runs the rules; reads what jobs wrote and how SageMaker describes them."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        platform: Platform,
        judging: Judging,
    ) -> None:
        super().__init__(scope, id_)
        made = PythonFunction(
            self,
            "Handler",
            platform=platform,
            package=PACKAGE,
            timeout=TIMEOUT,
            memory_mb=platform.config.evaluator_memory_mb,
            environment=judging.environment,
        )
        self.function = made.function
        self.function.add_event_source(
            SqsEventSource(
                judging.inbox.notices,
                batch_size=10,
                report_batch_item_failures=True,
                max_concurrency=platform.config.evaluator_concurrency,
            )
        )
        judging.grant_fold(made.role)
        judging.grant_ask(made.role)
        judging.grant_look(made.role)
        platform.alarms.when(
            custom_metric("RuleCrashes", PACKAGE),
            self,
            "RuleCrashes",
            "A rule crashed; it judges nothing more in the jobs where it did.",
        )
        platform.alarms.when(
            custom_metric("UploadsDropped", PACKAGE),
            self,
            "UploadsDropped",
            "A hook dropped captured steps because it could not upload them in time.",
        )
