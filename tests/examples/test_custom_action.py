from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Validations
from aws_cdk.assertions import Match, Template
from cdk_nag import AwsSolutionsChecks

from examples.custom_action.app import CustomActionStack
from examples.custom_action.function import handler
from trainwarden import events
from trainwarden.model import Finding, Severity, Status, Verdict
from trainwarden.policy import Response
from trainwarden.store.ports import JobRecord

APP = Path(__file__).parents[2] / "examples" / "custom_action" / "app.py"
PARAMETER = "/team/training-webhook"


def verdict(status: Status = Status.ISSUES_FOUND, *, muted: bool = False) -> dict[str, Any]:
    """Build the event as Trainwarden does."""
    message = "gradients of fc1 shrank to 1e-9"
    finding = Finding(40, "fc1", float("nan"), 1e-7, message, 38, remedies=("use ReLU",))
    return events.verdict_changed(
        JobRecord("resnet50"),
        Verdict("VanishingGradient", "GRD001", status, since_step=38, findings=1),
        previous=Status.IN_PROGRESS,
        finding=finding,
        response=Response(Severity.ERROR, muted=muted),
        time=1_790_000_000.0,
    )


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Match as EventBridge does, as far as lists of exact values go."""
    return all(
        name in event
        and (matches(wanted, event[name]) if isinstance(wanted, Mapping) else event[name] in wanted)
        for name, wanted in pattern.items()
    )


@pytest.fixture(scope="module")
def template() -> Template:
    return Template.from_stack(
        CustomActionStack(App(), "Example", bus_name="watch", webhook_parameter=PARAMETER)
    )


@pytest.fixture(scope="module")
def pattern(template: Template) -> dict[str, Any]:
    [rule] = template.find_resources("AWS::Events::Rule").values()
    found: dict[str, Any] = rule["Properties"]["EventPattern"]
    return found


def test_the_rule_listens_on_the_named_bus_and_keeps_what_cannot_be_delivered(
    template: Template,
) -> None:
    target = {"DeadLetterConfig": {"Arn": Match.any_value()}, "RetryPolicy": Match.any_value()}
    template.has_resource_properties(
        "AWS::Events::Rule",
        {"EventBusName": "watch", "Targets": [Match.object_like(target)]},
    )


@pytest.mark.parametrize("status", [Status.ISSUES_FOUND, Status.ERROR])
def test_the_rule_matches_what_was_found(pattern: dict[str, Any], status: Status) -> None:
    assert matches(pattern, verdict(status))


@pytest.mark.parametrize(
    "event",
    [
        verdict(Status.NO_ISSUES_FOUND),
        verdict(muted=True),
        events.job_opened(JobRecord("resnet50"), time=0.0),
        {**verdict(), "source": "somebody"},
    ],
)
def test_the_rule_matches_nothing_else(pattern: dict[str, Any], event: dict[str, Any]) -> None:
    assert not matches(pattern, event)


def test_the_function_may_read_one_parameter_and_write_its_log(template: Template) -> None:
    [policy] = template.find_resources("AWS::IAM::Policy").values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    actions = {
        action
        for statement in statements
        for action in (
            [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        )
    }
    assert actions == {
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "sqs:SendMessage",
        "ssm:DescribeParameters",
        "ssm:GetParameters",
        "ssm:GetParameter",
        "ssm:GetParameterHistory",
    }
    assert all(statement["Resource"] != "*" for statement in statements)


def test_cdk_nag_finds_nothing_in_it() -> None:
    app = App()
    CustomActionStack(app, "Example", bus_name="watch")
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


def test_without_a_bus_the_app_says_where_its_name_is_found() -> None:
    done = subprocess.run([sys.executable, str(APP)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "-c bus=NAME" in done.stderr
    assert "OutputKey=='BusName'" in done.stderr


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been posted."""
    requests: list[Any] = []

    def urlopen(request: Any, timeout: float) -> BytesIO:
        assert timeout == handler.TIMEOUT_S
        requests.append(request)
        return BytesIO()

    monkeypatch.setattr(handler, "urlopen", urlopen)
    return requests


def test_a_verdict_is_logged_and_posted(
    posted: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handler, "webhook", lambda: "https://chat.example.org/hook")
    event = verdict()
    handler.handler(json.loads(events.dumps(event)), None)
    text = (
        "[error] resnet50: VanishingGradient is IssuesFound since step 38. "
        "gradients of fc1 shrank to 1e-9 Try first: use ReLU"
    )
    event_id = event["detail"]["metadata"]["event_id"]
    logged = json.loads(capsys.readouterr().out)
    assert logged == {"event_id": event_id, "job": "resnet50", "text": text}
    [request] = posted
    assert request.full_url == "https://chat.example.org/hook"
    assert json.loads(request.data) == {"text": text}
    assert request.get_header("Idempotency-key") == event_id


def test_without_a_webhook_the_verdict_is_only_logged(
    posted: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEBHOOK_PARAMETER", "")
    handler.webhook.cache_clear()
    handler.handler(verdict(), None)
    assert "VanishingGradient" in capsys.readouterr().out
    assert posted == []


@pytest.mark.parametrize("url", ["http://chat.example.org", "file:///etc/passwd"])
def test_only_https_is_posted_to(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    class Parameters:
        def get_parameter(self, **_request: Any) -> dict[str, Any]:
            return {"Parameter": {"Value": url}}

    monkeypatch.setenv("WEBHOOK_PARAMETER", PARAMETER)
    monkeypatch.setattr("boto3.client", lambda _service: Parameters())
    handler.webhook.cache_clear()
    with pytest.raises(ValueError, match="https://"):
        handler.webhook()
