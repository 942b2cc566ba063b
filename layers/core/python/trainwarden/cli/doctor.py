"""``trainwarden doctor``: is it deployed well, may it do its work, and why is a job not there?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from trainwarden.cli import views
from trainwarden.cli.commands import ISSUES, OK, place_of
from trainwarden.cli.place import Place
from trainwarden.cli.render import Output
from trainwarden.config import JobConfig, Problem
from trainwarden.config import resolve as resolve_config
from trainwarden.errors import MalformedObjectError, NotFoundError
from trainwarden.model import Json
from trainwarden.policy import run_key
from trainwarden.store.ports import JobRecord, JobStatus, TrainingJob
from trainwarden.store.sagemaker import SageMakerJobs
from trainwarden.wire.identity import identity
from trainwarden.wire.keys import ManifestKey
from trainwarden.wire.manifest import Manifest
from trainwarden.wire.seal import is_sealed

COLUMNS = ("check", "result", "found")
MAX_MANIFEST_BYTES = 8 << 20


class Check(NamedTuple):
    """One thing looked at: ``result`` is ok, warning or fail; ``do`` says what to do now."""

    check: str
    result: str
    found: str
    do: str | None = None


def doctor(args: argparse.Namespace, out: Output) -> int:
    """Check the deployment, and why a job does not show up or stop; say what to do."""
    try:
        place = place_of(args)
    except NotFoundError as exc:
        checks = [Check("deployment", "fail", str(exc), "see the README, Use it on AWS")]
    else:
        checks = [*deployment(place), *(job(place, args.job) if args.job else ())]
    out.rows([found._asdict() for found in checks], COLUMNS, "nothing to check", detail="do")
    return ISSUES if any(found.result == "fail" for found in checks) else OK


def deployment(place: Place) -> Iterator[Check]:
    """Check what is deployed at a place."""
    yield Check("place", "ok", place.title)
    if place.session is None:
        return
    yield from _guarded("ledger table", _table, place)
    yield from _guarded("bucket", _bucket, place)
    yield from _guarded("subscriptions", _subscriptions, place)
    yield from _guarded("dead letters", _dead_letters, place)


def _guarded(name: str, look: Callable[[Place], Iterator[Check]], place: Place) -> Iterator[Check]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from look(place)
    except (ClientError, BotoCoreError) as exc:
        yield Check(name, "fail", str(exc), "check that you may read it, and deploy again")


def _table(place: Place) -> Iterator[Check]:
    name = place.outputs["TableName"]
    status = place.client("dynamodb").describe_table(TableName=name)["Table"]["TableStatus"]
    result = "ok" if status in {"ACTIVE", "UPDATING"} else "fail"
    yield Check("ledger table", result, f"{name} is {status}")


def _bucket(place: Place) -> Iterator[Check]:
    name = place.outputs["BucketName"]
    found = place.client("s3").get_bucket_notification_configuration(Bucket=name)
    if found.get("QueueConfigurations"):
        yield Check("bucket", "ok", f"{name} sends notices to the evaluator's queue")
    else:
        yield Check("bucket", "fail", f"{name} sends no notices", "deploy the stack again")


def _subscriptions(place: Place) -> Iterator[Check]:
    topic = place.outputs["TopicArn"]
    pages = place.client("sns").get_paginator("list_subscriptions_by_topic")
    found = [s for page in pages.paginate(TopicArn=topic) for s in page["Subscriptions"]]
    if not found:
        yield Check(
            "subscriptions",
            "warning",
            "nobody is told anything",
            "set emails or sms in cdk.json (docs/configuration.md) and deploy",
        )
    for one in found:
        waiting = one["SubscriptionArn"] == "PendingConfirmation"
        yield Check(
            "subscriptions",
            "warning" if waiting else "ok",
            f"{one['Protocol']} {one['Endpoint']}{' is not confirmed' if waiting else ''}",
            "follow the link in AWS's confirmation e-mail" if waiting else None,
        )


def _dead_letters(place: Place) -> Iterator[Check]:
    pages = place.client("cloudformation").get_paginator("list_stack_resources")
    found = [
        resource["PhysicalResourceId"]
        for page in pages.paginate(StackName=place.stack)
        for resource in page["StackResourceSummaries"]
        if resource["ResourceType"] == "AWS::SQS::Queue"
        and "DeadLetters" in resource["LogicalResourceId"]
    ]
    sqs, wanted = place.client("sqs"), "ApproximateNumberOfMessages"
    full = {}
    for url in found:
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[wanted])
        full[url.rpartition("/")[2]] = int(answer["Attributes"][wanted])
    for name, count in full.items():
        if count:
            do = "look at the function's log, then redrive the queue"
            yield Check("dead letters", "warning", f"{count} in {name}", do)
    if not any(full.values()):
        yield Check("dead letters", "ok", f"{len(found)} queues, all empty")


def job(place: Place, name: str) -> Iterator[Check]:
    """Check why a job does not show up, is not judged or is not stopped."""
    training, record = None, place.ledger.load(name)
    if place.session is not None:
        training = SageMakerJobs(place.client("sagemaker")).describe(name)
        yield from _training(name, training, record)
    manifest, body = None, None
    try:
        body = place.objects.get(str(ManifestKey(name)), max_bytes=MAX_MANIFEST_BYTES)
        manifest = Manifest.from_bytes(body) if body else None
        yield _manifest(manifest, training)
    except MalformedObjectError as exc:
        yield Check("data", "fail", f"the manifest is not valid: {exc}", "use one hook a job")
    yield from _ledger(record)
    if training is not None and manifest is not None:
        yield stop(training, manifest, body or b"")


def _training(name: str, training: TrainingJob | None, record: JobRecord | None) -> Iterator[Check]:
    if training is None:
        yield Check(
            "training job",
            "warning",
            f"SageMaker has no training job {name} here",
            "right for a job outside SageMaker; else check name, region and account",
        )
        return
    yield Check("training job", "ok", f"{training.status} {training.secondary_status}")
    ours = {key: text for key, text in training.tags.items() if key.startswith("trainwarden:")}
    if not ours:
        yield Check(
            "tags", "warning", "no trainwarden: tag", "tag the job trainwarden:rules=default"
        )
    problems = _problems(training, ours, record)
    for problem in problems:
        yield Check("tags", "fail", f"{problem.key}: {problem.found}", _expected(problem))
    if ours and not problems:
        yield Check("tags", "ok", ", ".join(f"{key}={text}" for key, text in ours.items()))


def _problems(
    training: TrainingJob, tags: Mapping[str, str], record: JobRecord | None
) -> Iterable[Problem]:
    """Return what was not understood; the deployment knows best, custom rules for example."""
    if record is not None and record.config:
        return JobConfig.from_json(record.config).problems
    return resolve_config(
        tags=tags,
        debug_rules=training.debug_rules,
        debug_hook=training.debug_hook,
        manifest_rules={},
        defaults={},
    ).problems


def _expected(problem: Problem) -> str:
    hint = f"; did you mean {problem.nearest}?" if problem.nearest else ""
    return f"use {problem.expected}{hint}"


def _manifest(manifest: Manifest | None, training: TrainingJob | None) -> Check:
    if manifest is not None:
        rows = len(manifest.layout.tensors)
        return Check("data", "ok", f"{manifest.framework} sends {rows} tensors")
    started = training is None or training.status != "InProgress"
    return Check(
        "data",
        "fail" if started else "warning",
        "no manifest in the bucket: the hook has not sent anything",
        "add trainwarden.watch(model, optimizer) to the script, attach the stack's "
        "TrainingPolicyArn to the training role, and look for 'trainwarden' in the job's log",
    )


def _ledger(record: JobRecord | None) -> Iterator[Check]:
    if record is None:
        yield Check("ledger", "fail", "the ledger does not know the job", "see the checks above")
        return
    standing = views.verdict_rows(record)
    unseen = [
        str(row["rule"])
        for row in standing
        if row["status"] == "not evaluated" and row["note"] != views.FOR_TREES
    ]
    yield Check("ledger", "ok", f"{record.status.value}, {len(standing)} rules")
    if unseen and record.status is JobStatus.CLOSED:
        found = f"not evaluated: {', '.join(unseen)}"
        yield Check("ledger", "warning", found, "`trainwarden verdicts` says what to capture")


def stop(training: TrainingJob, manifest: Manifest, body: bytes) -> Check:
    """Check whether a job may be stopped; ``body`` is the manifest as it lies in the bucket."""
    if training.tags.get("trainwarden:stop") != "allow":
        do = "tag the job trainwarden:stop=allow if it may be stopped"
        return Check("stop", "ok", "this job is never stopped", do)
    nonce = training.tags.get("trainwarden:nonce", "")
    if manifest.identity != identity(training.arn, _strings(training.hyperparameters), nonce):
        return Check(
            "stop",
            "fail",
            "the data in the bucket was not written by this run: it will not be stopped",
            "write to a job name of its own; with trainwarden:nonce, set TRAINWARDEN_NONCE alike",
        )
    if not is_sealed(body, run_key(training), str(ManifestKey(training.name))):
        return Check(
            "stop",
            "fail",
            "its data is not sealed by this run: it will not be stopped",
            "install a trainwarden as new as the deployment in the training container; if it is, "
            "somebody else wrote the manifest: find out which role",
        )
    return Check("stop", "ok", "marked, and its data is sealed by this run")


def _strings(mapping: Mapping[str, Json]) -> dict[str, str]:
    return {key: str(value) for key, value in mapping.items()}
