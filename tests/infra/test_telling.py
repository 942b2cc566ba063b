"""Who hears of what: rules of the two buses, topics, subscriptions, alarms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.infra.synthesis import ROOT, Synthesis, synthesize

GOLDEN = [
    path
    for path in sorted((ROOT / "tests" / "events").glob("*.json"))
    if json.loads(path.read_text("utf-8")).get("source") == "trainwarden"
]
SUBSCRIPTION = "AWS::SNS::Subscription"
RULE = "AWS::Events::Rule"
ALARM = "AWS::CloudWatch::Alarm"


def matches(pattern: Any, value: Any) -> bool:
    """Tell whether EventBridge would match, for the patterns we use."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            key in value and matches(wanted, value[key]) for key, wanted in pattern.items()
        )
    (first, *_) = pattern
    if isinstance(first, dict):
        ((sign, limit),) = first.values()
        assert sign == ">"
        return bool(value > limit)
    return any(value is wanted or value == wanted for wanted in pattern)


def test_people_hear_of_bad_verdicts_that_are_not_muted(stack: Synthesis) -> None:
    assert stack.only(RULE, "Notifier/Verdicts")["EventPattern"] == {
        "source": ["trainwarden"],
        "detail-type": ["Verdict Changed"],
        "detail": {"data": {"status": ["IssuesFound", "Error"], "muted": [False]}},
    }


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_an_event_with_a_text_for_people_reaches_the_notifier_once_and_others_never(
    stack: Synthesis, golden: Path
) -> None:
    event = json.loads(golden.read_text("utf-8"))
    reached = [
        path
        for path, rule in stack.of(RULE).items()
        if path.startswith("Notifier/") and matches(rule["Properties"]["EventPattern"], event)
    ]
    # A symptom has no text of its own unless its cause reached nobody: the notifier decides.
    symptom = bool(event["detail"]["data"].get("cause"))
    assert len(reached) == (golden.with_suffix(".txt").is_file() or symptom)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_an_event_starts_the_state_machine_only_if_it_asks_for_a_stop(
    stack: Synthesis, golden: Path
) -> None:
    event = json.loads(golden.read_text("utf-8"))
    asks = event["detail"]["data"].get("stop_requested", False)
    assert matches(stack.only(RULE, "Stop/Requested")["EventPattern"], event) is asks


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.stem)
def test_an_event_asks_for_detail_only_if_it_says_so(stack: Synthesis, golden: Path) -> None:
    event = json.loads(golden.read_text("utf-8"))
    asks = event["detail"]["data"].get("capture_requested", False)
    assert matches(stack.only(RULE, "Stop/MoreRequested")["EventPattern"], event) is asks


def test_the_function_that_asks_for_detail_is_given_job_and_rule(stack: Synthesis) -> None:
    (target,) = stack.only(RULE, "Stop/MoreRequested")["Targets"]
    transformer = target["InputTransformer"]
    assert transformer["InputPathsMap"] == {
        "detail-data-job": "$.detail.data.job",
        "detail-data-rule": "$.detail.data.rule",
    }
    assert json.loads(transformer["InputTemplate"].replace("<", '"<').replace(">", '>"')) == {
        "operation": "capture",
        "job": "<detail-data-job>",
        "rule": "<detail-data-rule>",
    }
    assert target["DeadLetterConfig"]


def test_every_job_of_sagemaker_is_heard_of_on_the_default_bus(stack: Synthesis) -> None:
    rule = stack.only(RULE, "Jobs")
    assert "EventBusName" not in rule
    assert rule["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Training Job State Change"],
    }


def test_the_sweeper_comes_each_minute_and_a_missed_one_is_not_made_up_for(
    stack: Synthesis,
) -> None:
    rule = stack.only(RULE, "Sweeper")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert rule["Targets"][0]["RetryPolicy"]["MaximumRetryAttempts"] == 0


@pytest.mark.parametrize(
    ("address", "protocol"),
    [("ada@example.org", "email"), ("grace@example.org", "email"), ("+4915112345678", "sms")],
)
def test_each_subscriber_gets_what_is_for_all_and_what_is_for_them(
    stack: Synthesis, address: str, protocol: str
) -> None:
    one = stack.only(SUBSCRIPTION, f"Topics/Verdicts/{address}")
    assert (one["Protocol"], one["Endpoint"]) == (protocol, address)
    assert one["FilterPolicy"] == {"to": ["all", address]}
    assert "deadLetterTargetArn" in one["RedrivePolicy"]


def test_alarms_go_to_the_same_people_unless_others_are_named(stack: Synthesis) -> None:
    def told(found: Synthesis) -> list[str]:
        return [
            r["Properties"]["Endpoint"]
            for path, r in found.of(SUBSCRIPTION).items()
            if path.startswith("Topics/Alarms")
        ]

    assert told(stack) == ["ada@example.org", "grace@example.org"]
    others = synthesize(emails="ada@example.org", alarm_emails="ops@example.org")
    assert told(others) == ["ops@example.org"]


def test_alarm_messages_carry_no_address_and_are_not_filtered(stack: Synthesis) -> None:
    for path, one in stack.of(SUBSCRIPTION).items():
        if path.startswith("Topics/Alarms"):
            assert "FilterPolicy" not in one["Properties"]


def test_topics_are_encrypted_with_a_key_that_cloudwatch_may_use(stack: Synthesis) -> None:
    key = stack.id_of("AWS::KMS::Key", "Topics")
    for topic in stack.of("AWS::SNS::Topic").values():
        assert topic["Properties"]["KmsMasterKeyId"] == {"Fn::GetAtt": [key, "Arn"]}
    statements = stack.only("AWS::KMS::Key", "Topics")["KeyPolicy"]["Statement"]
    assert {"Service": "cloudwatch.amazonaws.com"} in [s["Principal"] for s in statements]


def test_cloudwatch_of_this_account_may_publish_alarms(stack: Synthesis) -> None:
    policy = stack.only("AWS::SNS::TopicPolicy", "Topics/Alarms")["PolicyDocument"]["Statement"]
    (allowed,) = (s for s in policy if s["Effect"] == "Allow")
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert "aws:SourceAccount" in str(allowed["Condition"])


def test_what_can_go_wrong_has_an_alarm(stack: Synthesis) -> None:
    named = {path.removesuffix("/Resource") for path in stack.of(ALARM)}
    errors = {
        f"{path}/Handler/ErrorsAlarm"
        for path in ("Evaluator", "Announcer", "Jobs", "Sweeper", "Notifier", "Stop")
    }
    queues = {
        path.removesuffix("/Resource") + "/DepthAlarm"
        for path in stack.of("AWS::SQS::Queue")
        if "DeadLetters" in path
    }
    assert named == errors | queues | {
        "Inbox/OldestNoticeAlarm",
        "Evaluator/RuleCrashesAlarm",
        "Evaluator/UploadsDroppedAlarm",
        "Stop/FailedAlarm",
    }
    assert len(queues) == 7


def test_every_alarm_tells_somebody_and_keeps_quiet_without_data(stack: Synthesis) -> None:
    topic = stack.id_of("AWS::SNS::Topic", "Topics/Alarms")
    for path, alarm in stack.of(ALARM).items():
        properties = alarm["Properties"]
        assert properties["AlarmActions"] == [{"Ref": topic}], path
        assert properties["TreatMissingData"] == "notBreaching", path
        assert properties["AlarmDescription"], path


def test_events_are_archived_only_if_asked_for(stack: Synthesis) -> None:
    assert not stack.of("AWS::Events::Archive")
    archive = synthesize(archive_days="30").only("AWS::Events::Archive", "")
    assert archive["RetentionDays"] == 30
    assert archive["EventPattern"] == {"source": ["trainwarden"]}


def test_custom_metrics_are_read_where_the_functions_write_them(stack: Synthesis) -> None:
    metrics = {
        alarm["Properties"]["MetricName"]: alarm["Properties"]
        for alarm in stack.of(ALARM).values()
        if alarm["Properties"].get("Namespace") == "Trainwarden"
    }
    assert set(metrics) == {"RuleCrashes", "UploadsDropped"}
    for properties in metrics.values():
        assert properties["Dimensions"] == [{"Name": "service", "Value": "evaluator"}]


def test_the_dashboard_shows_metrics_that_the_functions_write(stack: Synthesis) -> None:
    named = set(re.findall(r'"Trainwarden","(\w+)"', str(stack.readable(_dashboard(stack)))))
    source = (ROOT / "lambdas" / "shared" / "obs.py").read_text("utf-8")
    assert named
    assert named <= set(re.findall(r'= "(\w+)"', source))


def _dashboard(stack: Synthesis) -> Any:
    return stack.only("AWS::CloudWatch::Dashboard", "Dashboard")["DashboardBody"]
