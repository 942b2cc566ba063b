"""One dashboard: is data coming in, is it judged in time, does anything fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.function import custom_metric

HALF = 12  # of the dashboard's 24 columns
FIVE_MINUTES = Duration.minutes(5)


class Dashboard(Construct):
    """What to look at first when something seems wrong."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        notices: sqs.IQueue,
        functions: Mapping[str, lambda_.IFunction],
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, id_)
        board = cloudwatch.Dashboard(self, "Board", default_interval=Duration.hours(3))
        board.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24, height=4)
        )
        board.add_widgets(
            _graph(
                "Waiting notices, age of the oldest (s)",
                [notices.metric_approximate_number_of_messages_visible(statistic="Maximum")],
                [notices.metric_approximate_age_of_oldest_message(statistic="Maximum")],
            ),
            _graph(
                "Judged objects, findings; seconds from saved to judged",
                [_evaluated("ObjectsFolded"), _evaluated("FindingsRecorded")],
                [_evaluated("FoldLagSeconds", statistic="Maximum")],
            ),
        )
        board.add_widgets(
            _graph(
                "Lost, rejected, dropped, crashed",
                [_evaluated(name) for name in TROUBLE],
            ),
            _graph(
                "Errors of the functions",
                [
                    function.metric_errors(label=name, period=FIVE_MINUTES)
                    for name, function in functions.items()
                ],
            ),
        )
        board.add_widgets(
            _graph(
                "Duration of the functions (ms, 99 of 100)",
                [
                    function.metric_duration(label=name, statistic="p99", period=FIVE_MINUTES)
                    for name, function in functions.items()
                ],
            ),
            _graph(
                "Invocations",
                [
                    function.metric_invocations(label=name, period=FIVE_MINUTES)
                    for name, function in functions.items()
                ],
            ),
        )


TROUBLE = ("GapsSkipped", "DataRejected", "UploadsDropped", "RuleCrashes")


def _evaluated(name: str, statistic: str = "Sum") -> cloudwatch.Metric:
    return custom_metric(name, "evaluator", statistic=statistic)


def _graph(
    title: str,
    left: Sequence[cloudwatch.IMetric],
    right: Sequence[cloudwatch.IMetric] = (),
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(left), right=list(right), width=HALF)
