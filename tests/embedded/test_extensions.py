from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.conftest import Lab, until
from trainwarden.embedded import outbox
from trainwarden.embedded.extensions import interpreters, metrics
from trainwarden.embedded.extensions.validation import input_shape, violations
from trainwarden.embedded.launcher import Server
from trainwarden.model import Json

SLEEP = "import time\nprint('started', flush=True)\ntime.sleep(60)\n"
RUNTIME = f"python3.{sys.version_info.minor}"
FUNCTION = """
import importlib.util, json, os, time
def handler(event, context):
    print(json.dumps({"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [
        {"Namespace": "Test", "Dimensions": [["service"]],
         "Metrics": [{"Name": "Seen", "Unit": "Count"}]}]}, "service": "here", "Seen": [2, 3]}))
    wanted = ("boto3", "dateutil", "numpy", "trainwarden", "ministack", "pytest")
    return {"found": [n for n in wanted if importlib.util.find_spec(n)],
            "profile": os.environ.get("AWS_PROFILE")}
"""
TEMPLATE = {
    "Resources": {
        "Bus": {"Type": "AWS::Events::EventBus", "Properties": {"Name": "archived"}},
        "Archive": {
            "Type": "AWS::Events::Archive",
            "Properties": {
                "SourceArn": {"Fn::GetAtt": ["Bus", "Arn"]},
                "EventPattern": {"source": ["kept"]},
                "RetentionDays": 3,
            },
        },
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "TableName": "expiring",
                "BillingMode": "PAY_PER_REQUEST",
                "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {"RoleName": "reserved", "AssumeRolePolicyDocument": {"Statement": []}},
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": "reserved",
                "Runtime": RUNTIME,
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": "def handler(event, context): pass"},
                "ReservedConcurrentExecutions": 4,
            },
        },
    }
}


def packed(source: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("index.py", source)
    return body.getvalue()


@pytest.fixture(scope="module")
def invoked(server: Server) -> Iterator[dict[str, Json]]:
    functions = server.client("lambda")
    functions.create_function(
        FunctionName="probe",
        Runtime=RUNTIME,
        Role="arn:aws:iam::000000000000:role/any",
        Handler="index.handler",
        Code={"ZipFile": packed(FUNCTION)},
        Timeout=20,
    )
    yield json.loads(functions.invoke(FunctionName="probe")["Payload"].read())
    functions.delete_function(FunctionName="probe")


def test_a_function_sees_awss_sdk_and_nothing_that_this_machine_has_installed(
    invoked: dict[str, Json],
) -> None:
    assert invoked["found"] == ["boto3", "dateutil"]


def test_metrics_that_a_function_logs_arrive_in_cloudwatch(
    server: Server, invoked: dict[str, Json]
) -> None:
    del invoked
    cloudwatch = server.client("cloudwatch")
    found = cloudwatch.list_metrics(Namespace="Test", MetricName="Seen")["Metrics"]
    assert [m["Dimensions"] for m in found] == [[{"Name": "service", "Value": "here"}]]


def test_every_value_of_an_embedded_metric_counts() -> None:
    line = {
        "_aws": {
            "Timestamp": 1000,
            "CloudWatchMetrics": [
                {"Namespace": "N", "Dimensions": [["a"], []], "Metrics": [{"Name": "m"}]}
            ],
        },
        "a": "x",
        "m": [1, 2],
    }
    log = f"plain\n[INFO] {json.dumps(line)}\n{{broken CloudWatchMetrics\n"
    [(namespace, data)] = metrics.extract(log)
    assert namespace == "N"
    assert [(d["Value"], len(d["Dimensions"])) for d in data] == [(1, 1), (2, 1), (1, 0), (2, 0)]


@pytest.fixture(scope="module")
def stack(server: Server) -> Iterator[Server]:
    formation = server.client("cloudformation")
    formation.create_stack(
        StackName="extended",
        TemplateBody=json.dumps(TEMPLATE),
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    waiter = formation.get_waiter("stack_create_complete")
    waiter.wait(StackName="extended", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    yield server
    formation.delete_stack(StackName="extended")
    waiter = formation.get_waiter("stack_delete_complete")
    waiter.wait(StackName="extended", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    assert server.client("events").list_archives()["Archives"] == []


def test_a_template_can_have_an_event_archive(stack: Server) -> None:
    events = stack.client("events")
    [archive] = events.list_archives()["Archives"]
    entry = {"DetailType": "t", "Detail": "{}", "EventBusName": "archived"}
    events.put_events(Entries=[{"Source": s, **entry} for s in ("kept", "other")])
    described = events.describe_archive(ArchiveName=archive["ArchiveName"])
    assert (described["EventCount"], described["RetentionDays"]) == (1, 3)


def test_a_template_can_let_items_expire(stack: Server) -> None:
    found = stack.client("dynamodb").describe_time_to_live(TableName="expiring")
    assert found["TimeToLiveDescription"] == {
        "TimeToLiveStatus": "ENABLED",
        "AttributeName": "expires_at",
    }


def test_a_template_can_reserve_concurrency(stack: Server) -> None:
    found = stack.client("lambda").get_function_concurrency(FunctionName="reserved")
    assert found["ReservedConcurrentExecutions"] == 4


def test_the_outbox_keeps_what_each_protocol_would_send_to_whom_the_filter_lets(
    server: Server,
) -> None:
    sns = server.client("sns")
    topic = sns.create_topic(Name="told")["TopicArn"]
    for protocol, to, allowed in (
        ("email", "ada@example.org", ["all", "ada@example.org"]),
        ("email", "bob@example.org", ["bob@example.org"]),
        ("sms", "+4915112345678", ["all"]),
    ):
        sns.subscribe(
            TopicArn=topic,
            Protocol=protocol,
            Endpoint=to,
            Attributes={"FilterPolicy": json.dumps({"to": allowed})},
        )
    sns.publish(
        TopicArn=topic,
        Subject="Job x",
        MessageStructure="json",
        Message=json.dumps({"default": "d", "email": "long\ntext é", "sms": "short"}),
        MessageAttributes={"to": {"DataType": "String", "StringValue": "all"}},
    )
    found = [m for m in outbox.messages(server.state) if m["topic"] == topic]
    kept = [(m["protocol"], m["to"], m["subject"], m["message"]) for m in found]
    assert kept == [
        ("email", "ada@example.org", "Job x", "long\ntext é"),
        ("sms", "+4915112345678", "", "short"),
    ]
    assert found[0]["attributes"] == {"to": "all"}


def test_an_sms_to_a_number_is_kept_as_well(server: Server) -> None:
    server.client("sns").publish(PhoneNumber="+15550100", Message="hello")
    [message] = [m for m in outbox.messages(server.state) if m["to"] == "+15550100"]
    assert (message["protocol"], message["message"]) == ("sms", "hello")


ALLOW = {"Effect": "Allow", "Action": "sagemaker:StopTrainingJob", "Resource": "*"}
DENY = {
    **ALLOW,
    "Effect": "Deny",
    "Condition": {"StringNotEquals": {"aws:ResourceTag/trainwarden:stop": "allow"}},
}


class Stopper:
    """A state machine that stops one job, with a role of its own."""

    def __init__(self, server: Server, name: str, statements: list[Json]) -> None:
        iam, self._states = server.client("iam"), server.client("stepfunctions")
        role = iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=document)
        definition = {
            "StartAt": "Stop",
            "States": {
                "Stop": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::aws-sdk:sagemaker:stopTrainingJob",
                    "Parameters": {"TrainingJobName.$": "$.job"},
                    "End": True,
                }
            },
        }
        self._arn = self._states.create_state_machine(
            name=name, definition=json.dumps(definition), roleArn=role
        )["stateMachineArn"]

    def run(self, job: str) -> dict[str, Json]:
        started = self._states.start_execution(
            stateMachineArn=self._arn, input=json.dumps({"job": job})
        )

        def over() -> dict[str, Json] | None:
            found: dict[str, Json] = self._states.describe_execution(
                executionArn=started["executionArn"]
            )
            return None if found["status"] == "RUNNING" else found

        found = until(over)
        assert found is not None
        return found


def test_a_state_machine_stops_a_job_that_carries_the_tag(lab: Lab) -> None:
    stopper = Stopper(lab.server, "stops-tagged", [ALLOW, DENY])
    job = lab.start(SLEEP, tags={"trainwarden:stop": "allow"})
    assert stopper.run(job)["status"] == "SUCCEEDED"
    assert lab.ended(job)["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize("tags", [{}, {"trainwarden:stop": "deny"}])
def test_the_roles_deny_keeps_a_job_without_the_tag_running(
    lab: Lab, tags: dict[str, str], request: pytest.FixtureRequest
) -> None:
    name = f"spares-{request.node.callspec.id}"
    job = lab.start(SLEEP, tags=tags)
    found = Stopper(lab.server, name, [ALLOW, DENY]).run(job)
    assert found["status"] == "FAILED"
    assert found["error"] == "SageMaker.SageMakerException"
    assert "explicit deny" in found["cause"]
    assert lab.describe(job)["TrainingJobStatus"] == "InProgress"
    lab.sagemaker.stop_training_job(TrainingJobName=job)
    lab.ended(job)


def test_a_role_that_may_not_stop_cannot(lab: Lab) -> None:
    job = lab.start("", tags={"trainwarden:stop": "allow"})
    found = Stopper(lab.server, "may-not", [{**ALLOW, "Action": "sagemaker:ListTags"}]).run(job)
    assert "no identity-based policy allows" in found["cause"]
    lab.ended(job)


def test_an_unknown_job_is_an_error_that_a_state_machine_can_catch(lab: Lab) -> None:
    found = Stopper(lab.server, "stops-nobody", [ALLOW]).run("nobody")
    assert (found["error"], found["cause"]) == (
        "SageMaker.SageMakerException",
        "Requested resource not found.",
    )


def test_a_chosen_interpreter_wins_over_our_own() -> None:
    chosen = {interpreters.own_runtime(): "/opt/other/python"}
    assert interpreters.interpreter(interpreters.own_runtime(), chosen) == "/opt/other/python"


def test_another_runtime_is_looked_for_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3.99"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreters.interpreter("python3.99", {}) == str(other)


def test_a_violation_names_the_member_and_the_constraint_in_awss_words() -> None:
    shape = input_shape("sagemaker", "StopTrainingJob")
    [found] = violations(shape, {"TrainingJobName": "-"})
    assert found == (
        "Value '-' at 'trainingJobName' failed to satisfy constraint: "
        "Member must satisfy regular expression pattern: [a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
    )
    assert list(violations(shape, {})) == [
        "Value null at 'trainingJobName' failed to satisfy constraint: Member must not be null"
    ]
