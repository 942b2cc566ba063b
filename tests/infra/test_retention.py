"""What outlives the stack, and which names may never change."""

from __future__ import annotations

from tests.infra.synthesis import Synthesis, synthesize

KEPT = "RetainExceptOnCreate"


def policies(found: Synthesis) -> dict[str, str]:
    return {
        id_: resource["DeletionPolicy"]
        for id_, resource in found.template["Resources"].items()
        if "DeletionPolicy" in resource
    }


def test_logical_ids_of_bucket_and_table_never_change(stack: Synthesis) -> None:
    # A changed id would make CloudFormation replace them by empty ones.
    assert stack.id_of("AWS::S3::Bucket", "") == "InboxBucket1EDE8E4F"
    assert stack.id_of("AWS::DynamoDB::Table", "") == "LedgerTable9343E4AA"


def test_bucket_and_table_outlive_the_stack_and_nothing_else_does(stack: Synthesis) -> None:
    kept = {id_ for id_, policy in policies(stack).items() if policy != "Delete"}
    assert kept == {"InboxBucket1EDE8E4F", "LedgerTable9343E4AA"}
    assert {policies(stack)[id_] for id_ in kept} == {KEPT}


def test_nothing_outlives_a_stack_that_is_told_so() -> None:
    assert set(policies(synthesize(retain="false")).values()) == {"Delete"}


def test_the_bucket_is_emptied_before_anything_it_takes_is_deleted() -> None:
    found = synthesize(retain="false")
    contents = found.template["Resources"][found.id_of("Custom::BucketContents", "Emptier")]
    properties = contents["Properties"]
    assert properties["BucketName"] == {"Ref": found.id_of("AWS::S3::Bucket", "Inbox")}
    assert properties["ServiceTimeout"] == "900"
    assert found.id_of("AWS::S3::BucketPolicy", "Inbox") in contents["DependsOn"]


def test_nothing_has_a_name_of_its_own_but_the_parameter(stack: Synthesis) -> None:
    # Two deployments in one account would collide.
    names = {
        "BucketName",
        "TableName",
        "FunctionName",
        "QueueName",
        "RoleName",
        "TopicName",
        "AlarmName",
        "DashboardName",
        "StateMachineName",
        "LogGroupName",
        "ManagedPolicyName",
    }
    for id_, resource in stack.template["Resources"].items():
        properties = resource.get("Properties", {})
        assert not [key for key in names & set(properties) if isinstance(properties[key], str)], id_


def test_outputs_tell_what_people_and_the_command_line_look_up(stack: Synthesis) -> None:
    assert set(stack.template["Outputs"]) == {
        "BucketName",
        "TableName",
        "BusName",
        "TopicArn",
        "TrainingPolicyArn",
        "StopStateMachineArn",
        "RuntimeVersion",
    }
