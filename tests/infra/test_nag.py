from __future__ import annotations

from collections import Counter

import pytest
from aws_cdk import App

from infra import config, nag
from infra.stack import TrainwardenStack
from tests.infra.synthesis import FLAGS, Synthesis

NOTHING_BUNDLED: dict[str, list[str]] = {"aws:cdk:bundling-stacks": []}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="defaults"),
        pytest.param(
            {
                "emails": "ada@example.org",
                "sms": "+4915112345678",
                "retain": "false",
                "archive_days": "7",
                "dry_run": "true",
            },
            id="everything-turned-on",
        ),
    ],
)
def test_no_finding_is_open(values: dict[str, str]) -> None:
    app = App(
        context={**FLAGS, **NOTHING_BUNDLED, **{f"trainwarden.{k}": v for k, v in values.items()}}
    )
    TrainwardenStack(app, "Trainwarden", config=config.from_context(app.node.get_all_context()))
    nag.check(app)
    app.synth()  # raises on an open finding


def test_an_open_finding_fails_the_synth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nag, "acknowledge", lambda _stack: None)
    app = App(context={**FLAGS, **NOTHING_BUNDLED})
    TrainwardenStack(app, "Trainwarden", config=config.Config())
    nag.check(app)
    with pytest.raises(RuntimeError, match="Acknowledge with"):
        app.synth()


def test_each_acknowledgement_was_reviewed_and_has_its_reason(stack: Synthesis) -> None:
    accepted = list(nag.all_accepted(stack.stack))
    assert all(one.reason.endswith(".") and len(one.reason) > 20 for one in accepted)
    assert len({(one.path, one.finding) for one in accepted}) == len(accepted)
    # A new acknowledgement must be counted here, by somebody who has read its reason.
    assert Counter(one.finding.split("[")[0] for one in accepted) == {
        "AwsSolutions::AwsSolutions-S1": 1,
        "AwsSolutions::AwsSolutions-IAM5": 26,
        "AwsSolutions::AwsSolutions-L1": 8,
        "AwsSolutions::AwsSolutions-SQS3": 7,
        "Serverless::Serverless-LambdaDLQ": 8,
        "Serverless::Serverless-LambdaEventSourceMappingDestination": 1,
        "Serverless::Serverless-LambdaLatestVersion": 8,
        "Serverless::Serverless-SQSRedrivePolicy": 7,
    }
