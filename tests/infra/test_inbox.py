from __future__ import annotations

from infra.constructs.evaluator import TIMEOUT
from tests.infra.synthesis import Synthesis, synthesize

BUCKET = "AWS::S3::Bucket"
QUEUE = "AWS::SQS::Queue"


def test_only_objects_that_end_in_tw_below_jobs_cause_a_notice(stack: Synthesis) -> None:
    notifications = stack.only(BUCKET, "Inbox/Bucket")["NotificationConfiguration"]
    assert list(notifications) == ["QueueConfigurations"]
    (one,) = notifications["QueueConfigurations"]
    assert one["Event"] == "s3:ObjectCreated:*"
    assert one["Filter"]["S3Key"]["Rules"] == [
        {"Name": "prefix", "Value": "jobs/"},
        {"Name": "suffix", "Value": ".tw"},
    ]


def test_the_queue_may_be_written_before_the_bucket_sends_its_test_notice(
    stack: Synthesis,
) -> None:
    (bucket,) = stack.of(BUCKET).values()
    assert stack.id_of("AWS::SQS::QueuePolicy", "Inbox/Notices") in bucket["DependsOn"]


def test_s3_may_send_notices_for_this_account_alone(stack: Synthesis) -> None:
    policy = stack.only("AWS::SQS::QueuePolicy", "Inbox/Notices")["PolicyDocument"]
    (allowed,) = (s for s in policy["Statement"] if s["Effect"] == "Allow")
    assert allowed["Principal"] == {"Service": "s3.amazonaws.com"}
    assert allowed["Action"] == "sqs:SendMessage"
    assert allowed["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }


def test_a_notice_outlives_six_timeouts_five_times_then_goes_to_dead_letters(
    stack: Synthesis,
) -> None:
    queue = stack.only(QUEUE, "Inbox/Notices")
    assert queue["VisibilityTimeout"] == 6 * TIMEOUT.to_seconds()
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    target = queue["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
    assert target == stack.id_of(QUEUE, "Inbox/DeadLetters")


def test_the_bucket_is_private_encrypted_and_spoken_to_over_tls_alone(stack: Synthesis) -> None:
    bucket = stack.only(BUCKET, "Inbox/Bucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    policy = stack.only("AWS::S3::BucketPolicy", "Inbox/Bucket")["PolicyDocument"]["Statement"]
    conditions = [s["Condition"] for s in policy if s["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions


def test_old_steps_and_sooner_large_tensors_are_deleted() -> None:
    found = synthesize(steps_days="60", tensors_days="7")
    rules = {
        rule["Id"]: rule
        for rule in found.only(BUCKET, "Inbox/Bucket")["LifecycleConfiguration"]["Rules"]
    }
    assert rules["steps"]["ExpirationInDays"] == 60
    assert rules["tensors"]["ExpirationInDays"] == 7
    assert rules["tensors"]["ObjectSizeGreaterThan"] == str(8 << 20)
    assert {rules[id_]["Prefix"] for id_ in ("steps", "tensors")} == {"jobs/"}


def test_no_hidden_function_manages_the_bucket(stack: Synthesis) -> None:
    assert not [kind for kind in _kinds(stack) if kind.startswith("Custom::")]
    assert len(stack.of("AWS::Lambda::Function")) == 6


def test_hooks_find_the_bucket_by_the_parameter(stack: Synthesis) -> None:
    parameter = stack.only("AWS::SSM::Parameter", "Inbox")
    assert parameter["Name"] == "/trainwarden/bucket"
    assert parameter["Value"] == {"Ref": stack.id_of(BUCKET, "Inbox/Bucket")}


def _kinds(stack: Synthesis) -> set[str]:
    return {resource["Type"] for resource in stack.template["Resources"].values()}
