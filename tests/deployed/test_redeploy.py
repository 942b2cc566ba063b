"""The stack is changed and destroyed: runs last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deployed.conftest import CONTEXT, Cloud, until
from trainwarden.embedded import deploy
from trainwarden.model import Status
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed


def test_a_dry_run_decides_and_tells_but_stops_nothing(
    cloud: Cloud, deployment: deploy.Deployment
) -> None:
    replace(deployment, context={**CONTEXT, "dry_run": "true"}).deploy()
    cloud.submit("train_faulty.py", "rehearsal", stop="allow", rules="VanishingGradient")
    verdict = cloud.found_issues("rehearsal", "VanishingGradient")
    assert verdict.status is Status.ISSUES_FOUND
    actions = until(lambda: cloud.entries("rehearsal", EntryKind.ACTION), "the decision")
    [action] = actions.values()
    assert action.body["outcome"] == "dry_run"
    until(
        lambda: [m for m in cloud.messages("rehearsal") if "dry run" in m["message"].lower()],
        "the mail that says it was a dry run",
    )
    assert cloud.describe("rehearsal")["TrainingJobStatus"] == "InProgress"
    cloud.server.client("sagemaker").stop_training_job(TrainingJobName="rehearsal")
    cloud.ended("rehearsal")
    cloud.closed("rehearsal")


def test_destroying_the_stack_leaves_nothing(cloud: Cloud, deployment: deploy.Deployment) -> None:
    deployment.destroy()
    client = cloud.server.client
    stacks = client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
    buckets = [bucket["Name"] for bucket in client("s3").list_buckets()["Buckets"]]
    assert [name for name in buckets if not name.startswith("cdk-")] == []
    assert client("dynamodb").list_tables()["TableNames"] == []
    assert client("lambda").list_functions()["Functions"] == []
    assert client("lambda").list_layers()["Layers"] == []
    assert client("stepfunctions").list_state_machines()["stateMachines"] == []
    assert client("sns").list_topics()["Topics"] == []
    assert client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert client("cloudwatch").list_dashboards()["DashboardEntries"] == []
    assert client("events").list_archives()["Archives"] == []
    assert client("events").list_rules()["Rules"] == []
    queues = client("sqs").list_queues().get("QueueUrls", [])
    assert [url.rpartition("/")[2] for url in queues] == ["heard"]
    groups = [g["logGroupName"] for g in client("logs").describe_log_groups()["logGroups"]]
    assert [name for name in groups if "rainwarden" in name] == []
    roles = [role["RoleName"] for role in client("iam").list_roles()["Roles"]]
    assert [name for name in roles if name.startswith("Trainwarden")] == []
    parameters = client("ssm").describe_parameters()["Parameters"]
    assert [p["Name"] for p in parameters if "trainwarden" in p["Name"]] == []
