"""cdk-nag: the packs we hold ourselves to, and each finding we accept, with its reason.

A test counts the acknowledgements, so that none is added unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from aws_cdk import Acknowledgment, App, CfnElement, Stack, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks
from constructs import IConstruct

WILDCARD = "AwsSolutions::AwsSolutions-IAM5[{}]"
OLD_RUNTIME = (
    "AwsSolutions::AwsSolutions-L1",
    "Serverless::Serverless-LambdaLatestVersion",
)
NO_DLQ = "Serverless::Serverless-LambdaDLQ"
QUEUE_WITHOUT_DLQ = (
    "AwsSolutions::AwsSolutions-SQS3",
    "Serverless::Serverless-SQSRedrivePolicy",
)
JOBS = "training-job/*"


class Accepted(NamedTuple):
    """One finding we live with."""

    path: str  # of the construct, below the stack
    finding: str
    reason: str


# Why a function needs no dead-letter queue of its own; the path is that of its PythonFunction.
FUNCTIONS = {
    "Evaluator/Handler": "Its queue sends back and redrives what it cannot handle.",
    "Announcer/Handler": "Its stream mapping has a queue for what it cannot handle.",
    "Jobs/Handler": "Its on-failure destination is a queue, which keeps the error as well.",
    "Sweeper/Handler": "Its on-failure destination is a queue, which keeps the error as well.",
    "Notifier/Handler": "Its on-failure destination is a queue, which keeps the error as well.",
    "Stop/Handler": "Its on-failure destination is a queue, and the state machine handles errors.",
    "CustomRules/Handler": "Only the pipeline invokes it, and takes its error for an answer.",
    "Emptier/Handler": "CloudFormation waits for its answer and reports the error.",
}
UNTRACED = ("CustomRules/Handler",)
READERS = ("Evaluator", "Jobs", "Sweeper", "Stop")
DEAD_LETTERS = (
    "Topics/DeadLetters",
    "Inbox/DeadLetters",
    "Announcer/DeadLetters",
    "Jobs/Handler/DeadLetters",
    "Sweeper/Handler/DeadLetters",
    "Notifier/Handler/DeadLetters",
    "Stop/Handler/DeadLetters",
)


def check(app: App) -> None:
    """Make an open finding fail the synth."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))


def acknowledge(stack: Stack) -> None:
    """Acknowledge every accepted finding on its construct, where the deployment has it."""
    for accepted in all_accepted(stack):
        construct = _find(stack, accepted.path)
        if construct is not None:
            Validations.of(construct).acknowledge(
                Acknowledgment(id=accepted.finding, reason=accepted.reason)
            )


def all_accepted(stack: Stack) -> Iterator[Accepted]:
    """Yield what we accept; ids of wildcards name the resource as the template does."""
    bucket = _resource(stack, "Inbox/Bucket")
    jobs = f"Resource::arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:{JOBS}"
    yield Accepted(
        "Inbox/Bucket",
        "AwsSolutions::AwsSolutions-S1",
        "Access logs would need a second bucket for statistics that hold no personal data; "
        "who needs them turns on CloudTrail data events for the account.",
    )
    for path, reason in FUNCTIONS.items():
        yield from _function(path, reason)
    for path in READERS:
        yield Accepted(
            f"{path}/Handler/Role",
            WILDCARD.format(f"{bucket}/jobs/*"),
            "It reads what jobs wrote, and job names are not known beforehand.",
        )
    yield Accepted(
        "Stop/Handler/Role",
        WILDCARD.format(f"{bucket}/jobs/*/control.json"),
        "It asks loops to end and hooks for detail, and job names are not known beforehand.",
    )
    for path in READERS:
        yield Accepted(
            f"{path}/Handler/Role",
            WILDCARD.format(jobs),
            "It describes training jobs, whose names are not known beforehand.",
        )
    for path in DEAD_LETTERS:
        for finding in QUEUE_WITHOUT_DLQ:
            yield Accepted(path, finding, "It is a dead-letter queue itself.")
    yield Accepted(
        "Evaluator/Handler/Function",
        "Serverless::Serverless-LambdaEventSourceMappingDestination",
        "Queues have no on-failure destination; the queue redrives after five attempts.",
    )
    yield Accepted(
        "Notifier/Handler/Role",
        WILDCARD.format(
            "Resource::arn:<AWS::Partition>:sns:<AWS::Region>:<AWS::AccountId>:trainwarden-*"
        ),
        "Jobs may name a topic of their own, whose name must begin so.",
    )
    yield from _training_policy(bucket)
    yield from _state_machine(jobs, _resource(stack, "Stop/Handler/Function"))
    yield Accepted(
        "Emptier/Handler/Role",
        WILDCARD.format(f"{bucket}/*"),
        "It deletes everything in the bucket, by request of the configuration.",
    )


def _function(path: str, no_dlq: str) -> Iterator[Accepted]:
    for finding in OLD_RUNTIME:
        yield Accepted(
            f"{path}/Function",
            finding,
            "The configuration chooses the version; the default is the newest one the tests run "
            "on, and AWS supports it as long as the one after it.",
        )
    yield Accepted(f"{path}/Function", NO_DLQ, no_dlq)
    if path in UNTRACED:
        return
    yield Accepted(
        f"{path}/Role", WILDCARD.format("Resource::*"), "X-Ray has no resources to name."
    )


def _training_policy(bucket: str) -> Iterator[Accepted]:
    reason = "A training role writes for any job it runs, and job names are not known beforehand."
    for below in ("control.json", "end/*", "manifest.tw", "steps/*", "tensors/*"):
        yield Accepted("TrainingAccess/Policy", WILDCARD.format(f"{bucket}/jobs/*/{below}"), reason)


def _state_machine(jobs: str, function: str) -> Iterator[Accepted]:
    role = "Stop/Role"
    yield Accepted(
        role,
        WILDCARD.format(jobs),
        "Any job may ask to be stopped; an explicit Deny covers all without the tag.",
    )
    yield Accepted(
        role,
        WILDCARD.format("Resource::*"),
        "X-Ray and log delivery have no resources to name; the Deny is meant for everything.",
    )
    yield Accepted(
        role,
        WILDCARD.format(f"{function}:*"),
        "CDK allows to invoke all versions of the one function with the function itself.",
    )


def _resource(stack: Stack, path: str) -> str:
    """Return how cdk-nag writes the resource of the construct at ``path``."""
    construct = _find(stack, path)
    resource = construct.node.default_child if construct else None
    assert isinstance(resource, CfnElement)  # noqa: S101 (for the type checker)
    return f"Resource::<{stack.get_logical_id(resource)}.Arn>"


def _find(stack: Stack, path: str) -> IConstruct | None:
    found: IConstruct | None = stack
    for part in path.split("/"):
        found = found.node.try_find_child(part) if found else None
    return found
