"""SageMaker training jobs: the API, and state changes on the default event bus.

Left out: images, more than one instance, local data channels, warm pools, pipes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import ModuleType

from ministack import app
from ministack.core import responses, router
from ministack.services import eventbridge

from trainwarden.embedded.extensions import caller
from trainwarden.embedded.extensions.training_jobs import (
    Job,
    RefusedError,
    Scope,
    TrainingJobs,
    merged,
)
from trainwarden.embedded.extensions.validation import input_shape, violations
from trainwarden.embedded.settings import ServerSettings
from trainwarden.embedded.training.environment import Cloud
from trainwarden.embedded.training.run import Machine, TrainingRun
from trainwarden.model import Json

MODULE = "sagemaker_training"
NOT_IN_DETAIL = ("DebugHookConfig", "DebugRuleConfigurations")
TIMES = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime")
SUMMARY = (
    "TrainingJobName",
    "TrainingJobArn",
    "CreationTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingJobStatus",
    "SecondaryStatus",
)
Response = tuple[int, dict[str, str], bytes]


def state_change(job: Job, detail: Mapping[str, Json]) -> None:
    """Put AWS's event on the default bus; times in it are in milliseconds."""
    document = {k: v for k, v in detail.items() if k not in NOT_IN_DETAIL}
    for name in TIMES:
        if name in document:
            document[name] = int(document[name] * 1000)
    document["SecondaryStatusTransitions"] = [
        {k: int(v * 1000) if k.endswith("Time") else v for k, v in transition.items()}
        for transition in detail["SecondaryStatusTransitions"]
    ]
    entry = {
        "Source": "aws.sagemaker",
        "DetailType": "SageMaker Training Job State Change",
        "Resources": [job.arn],
        "Detail": json.dumps(document),
    }
    with responses.request_scope(job.scope.account, job.scope.region):
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


class Operations:
    """One method per API operation; each takes the request and returns the answer."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.jobs = TrainingJobs(state_change)

    def create_training_job(self, scope: Scope, request: dict[str, Json]) -> Json:
        """Start a script."""
        for name in ("AlgorithmSpecification", "ResourceConfig"):
            if not request.get(name):
                raise RefusedError("ValidationException", f"{name} must be specified.")
        if request["ResourceConfig"].get("InstanceCount", 1) != 1:
            raise RefusedError(
                "ResourceLimitExceeded",
                "The account-level service limit for training job usage is 1 instance "
                "on the embedded AWS.",
            )
        job = self.jobs.create(scope, request, self._start)
        return {"TrainingJobArn": job.arn}

    def _start(self, job: Job) -> TrainingRun:
        settings, scope = self._settings, job.scope
        usual = scope == Scope(settings.account, settings.region)
        machine = Machine(
            Cloud(settings.endpoint, scope.region, scope.account),
            settings.jobs if usual else settings.jobs / f"{scope.account}.{scope.region}",
            settings.stop_grace_s,
            settings.training_python,
        )

        def listener(status: str, secondary: str, **fields: Json) -> None:
            self.jobs.enter(job, status, secondary, **fields)

        return TrainingRun(dict(job.description), job.arn, machine, listener)

    def describe_training_job(self, scope: Scope, request: dict[str, Json]) -> Json:
        """Tell all about a job."""
        return self.jobs.get(scope, request["TrainingJobName"]).description

    def stop_training_job(self, scope: Scope, request: dict[str, Json]) -> Json:
        """Begin to stop a job, if the caller's policies allow it on its tags."""
        name = request["TrainingJobName"]
        tags = {job.arn: job.tags for job in self.jobs.all(scope)}
        denied = caller.denial("sagemaker:StopTrainingJob", scope.arn(name), tags)
        if denied:
            raise RefusedError("AccessDeniedException", denied)
        self.jobs.stop(self.jobs.get(scope, name))
        return {}

    def list_training_jobs(self, scope: Scope, request: dict[str, Json]) -> Json:
        """List jobs, newest first unless asked otherwise."""
        tests: dict[str, Callable[[Mapping[str, Json], Json], bool]] = {
            "NameContains": lambda d, v: v.lower() in d["TrainingJobName"].lower(),
            "StatusEquals": lambda d, v: d["TrainingJobStatus"] == v,
            "CreationTimeAfter": lambda d, v: d["CreationTime"] > v,
            "CreationTimeBefore": lambda d, v: d["CreationTime"] < v,
            "LastModifiedTimeAfter": lambda d, v: d["LastModifiedTime"] > v,
            "LastModifiedTimeBefore": lambda d, v: d["LastModifiedTime"] < v,
        }
        asked = [(test, request[k]) for k, test in tests.items() if request.get(k) is not None]
        found = [
            job.description
            for job in self.jobs.all(scope)
            if all(test(job.description, value) for test, value in asked)
        ]
        field = {"Name": "TrainingJobName", "Status": "TrainingJobStatus"}.get(
            request.get("SortBy", ""), "CreationTime"
        )
        descending = request.get("SortOrder", "Descending") == "Descending"
        found.sort(key=lambda d: d[field], reverse=descending)
        start = int(request.get("NextToken") or 0)
        end = start + int(request.get("MaxResults", 10))
        answer: dict[str, Json] = {
            "TrainingJobSummaries": [{k: d[k] for k in SUMMARY if k in d} for d in found[start:end]]
        }
        if end < len(found):
            answer["NextToken"] = str(end)
        return answer

    def add_tags(self, _scope: Scope, request: dict[str, Json]) -> Json:
        """Add tags and return all."""
        job = self.jobs.by_arn(request["ResourceArn"])
        job.tags = merged(job.tags, request["Tags"])
        return {"Tags": _listed(job.tags)}

    def list_tags(self, _scope: Scope, request: dict[str, Json]) -> Json:
        """List a job's tags."""
        return {"Tags": _listed(self.jobs.by_arn(request["ResourceArn"]).tags)}

    def delete_tags(self, _scope: Scope, request: dict[str, Json]) -> Json:
        """Remove tags by key."""
        job = self.jobs.by_arn(request["ResourceArn"])
        job.tags = {k: v for k, v in job.tags.items() if k not in request["TagKeys"]}
        return {}


def _listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


class Service(ModuleType):
    """What MiniStack takes for a service module."""

    def __init__(self, settings: ServerSettings) -> None:
        super().__init__(MODULE)
        self._operations = Operations(settings)
        self._by_name: Mapping[str, Callable[[Scope, dict[str, Json]], Json]] = {
            "CreateTrainingJob": self._operations.create_training_job,
            "DescribeTrainingJob": self._operations.describe_training_job,
            "StopTrainingJob": self._operations.stop_training_job,
            "ListTrainingJobs": self._operations.list_training_jobs,
            "AddTags": self._operations.add_tags,
            "ListTags": self._operations.list_tags,
            "DeleteTags": self._operations.delete_tags,
        }

    async def handle_request(
        self, _method: str, _path: str, headers: dict[str, str], body: bytes, _query: Json
    ) -> Response:
        """Answer one call of the API."""
        name = headers.get("x-amz-target", "").rpartition(".")[2]
        operation = self._by_name.get(name)
        if operation is None:
            return _error("UnknownOperationException", f"{name} is not part of the embedded AWS")
        try:
            request = json.loads(body or b"{}")
            found = list(violations(input_shape("sagemaker", name), request))
            if found:
                plural = "error" if len(found) == 1 else "errors"
                text = f"{len(found)} validation {plural} detected: {'; '.join(found)}"
                return _error("ValidationException", text)
            scope = Scope(responses.get_account_id(), responses.get_region())
            return _response(200, operation(scope, request))
        except ValueError as exc:
            return _error("SerializationException", str(exc))
        except RefusedError as exc:
            return _error(exc.code, str(exc))

    def reset(self) -> None:
        """Forget all jobs; their scripts are killed."""
        self._operations.jobs.close()


def _error(code: str, message: str) -> Response:
    return _response(400, {"__type": code, "message": message})


def _response(status: int, document: Json) -> Response:
    headers = {"Content-Type": "application/x-amz-json-1.1"}
    return status, headers, json.dumps(document).encode()


def install(settings: ServerSettings) -> None:
    """Route SageMaker's API to us."""
    app._loaded_modules[MODULE] = Service(settings)
    app.SERVICE_REGISTRY["sagemaker"] = {"module": MODULE}
    app.SERVICE_HANDLERS["sagemaker"] = app._lazy_handler(MODULE)
    router.SERVICE_PATTERNS["sagemaker"] = {
        "target_prefixes": ["SageMaker."],
        "host_patterns": [r"(api\.)?sagemaker\."],
        "credential_scope": "sagemaker",
    }


def close() -> None:
    """Kill every training script; the server is about to end."""
    app._loaded_modules[MODULE].reset()
