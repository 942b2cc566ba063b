from __future__ import annotations

import ast
import json

import pytest

from tests.infra.synthesis import ROOT, Synthesis, synthesize

FUNCTION = "AWS::Lambda::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
PIPELINE = {"BUCKET_NAME", "TABLE_NAME", "LEDGER_DAYS", "DEFAULTS", "DRY_RUN"}
ENVIRONMENT = {
    "evaluator": PIPELINE,
    "jobs": PIPELINE,
    "sweeper": PIPELINE,
    "stopper": PIPELINE,
    "announcer": {"BUS_NAME"},
    "notifier": {"TOPIC_ARN"},
}
PATHS = {
    "evaluator": "Evaluator/Handler",
    "jobs": "Jobs/Handler",
    "sweeper": "Sweeper/Handler",
    "stopper": "Stop/Handler",
    "announcer": "Announcer/Handler",
    "notifier": "Notifier/Handler",
}


@pytest.mark.parametrize("package", PATHS)
def test_each_function_is_told_what_it_reads_and_nothing_else(
    stack: Synthesis, package: str
) -> None:
    function = stack.only(FUNCTION, PATHS[package])
    told = function["Environment"]["Variables"]
    assert set(told) == {
        "POWERTOOLS_SERVICE_NAME",
        "POWERTOOLS_METRICS_NAMESPACE",
        *ENVIRONMENT[package],
    }
    assert told["POWERTOOLS_SERVICE_NAME"] == package
    assert told["POWERTOOLS_METRICS_NAMESPACE"] == "Trainwarden"


@pytest.mark.parametrize("package", PATHS)
def test_each_function_has_the_handler_that_lies_in_the_repository(
    stack: Synthesis, package: str
) -> None:
    function = stack.only(FUNCTION, PATHS[package])
    assert function["Handler"] == f"lambdas.{package}.handler.handler"
    module = ast.parse((ROOT / "lambdas" / package / "handler.py").read_text("utf-8"))
    assert "handler" in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("package", PATHS)
def test_each_function_has_its_own_role_and_log_group_both_layers_and_traces(
    stack: Synthesis, package: str
) -> None:
    path = PATHS[package]
    function = stack.only(FUNCTION, path)
    assert function["Role"]["Fn::GetAtt"][0] == stack.id_of("AWS::IAM::Role", f"{path}/Role")
    log_group = stack.id_of("AWS::Logs::LogGroup", f"{path}/Logs")
    assert function["LoggingConfig"] == {"LogFormat": "JSON", "LogGroup": {"Ref": log_group}}
    assert function["TracingConfig"] == {"Mode": "Active"}
    assert len(function["Layers"]) == 2


def test_logs_are_kept_for_the_configured_days_and_go_with_the_stack() -> None:
    for group in synthesize(log_days="7").of("AWS::Logs::LogGroup").values():
        assert group["Properties"]["RetentionInDays"] == 7
        assert group["DeletionPolicy"] == "Delete"


def test_runtime_and_processor_are_the_configured_ones() -> None:
    found = synthesize(python="3.12", architecture="x86_64")
    for function in found.of(FUNCTION).values():
        assert function["Properties"]["Runtime"] == "python3.12"
        assert function["Properties"]["Architectures"] == ["x86_64"]
    for layer in found.of("AWS::Lambda::LayerVersion").values():
        assert layer["Properties"]["CompatibleRuntimes"] == ["python3.12"]
        assert layer["Properties"]["CompatibleArchitectures"] == ["x86_64"]
    assert found.template["Outputs"]["RuntimeVersion"]["Value"] == "python3.12-x86_64"


def test_only_the_failing_notice_of_a_batch_goes_back(stack: Synthesis) -> None:
    mapping = stack.only(MAPPING, "Evaluator")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == 10
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 20}
    assert "MaximumBatchingWindowInSeconds" not in mapping  # a verdict should come in seconds


def test_the_announcer_hears_of_outgoing_events_alone_and_loses_none(stack: Synthesis) -> None:
    mapping = stack.only(MAPPING, "Announcer")
    (only,) = mapping["FilterCriteria"]["Filters"]
    assert json.loads(only["Pattern"]) == {
        "dynamodb": {"NewImage": {"outbox": {"S": [{"exists": True}]}}}
    }
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0] == (
        stack.id_of("AWS::SQS::Queue", "Announcer/DeadLetters")
    )


@pytest.mark.parametrize("package", ["jobs", "sweeper", "notifier"])
def test_what_eventbridge_cannot_deliver_or_a_function_cannot_handle_is_kept(
    stack: Synthesis, package: str
) -> None:
    path = PATHS[package]
    queue = stack.id_of("AWS::SQS::Queue", f"{path}/DeadLetters")
    config = stack.only("AWS::Lambda::EventInvokeConfig", path)
    assert config["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0] == queue
    root = path.split("/")[0]
    rules = [r for p, r in stack.of("AWS::Events::Rule").items() if p.startswith(f"{root}/")]
    assert rules
    for rule in rules:
        (target,) = rule["Properties"]["Targets"]
        assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0] == queue


def test_every_queue_speaks_tls_alone(stack: Synthesis) -> None:
    queues = set(stack.of("AWS::SQS::Queue"))
    assert len(queues) == 8
    for path in queues:
        policy = stack.only("AWS::SQS::QueuePolicy", path.removesuffix("/Resource") + "/")
        assert {"Bool": {"aws:SecureTransport": "false"}} in [
            s.get("Condition")
            for s in policy["PolicyDocument"]["Statement"]
            if s["Effect"] == "Deny"
        ]


def test_defaults_of_jobs_are_the_deployed_ones() -> None:
    found = synthesize(
        rules="Overfit DeadRelu",
        stop_on="warning",
        dry_run="true",
        emails="ada@example.org",
        sms="+4915112345678",
    )
    told = found.only(FUNCTION, "Evaluator")["Environment"]["Variables"]
    assert json.loads(told["DEFAULTS"]) == {
        "rules": "Overfit DeadRelu",
        "stop_on": "warning",
        "subscribers": ["ada@example.org", "+4915112345678"],
    }
    assert told["DRY_RUN"] == "true"
