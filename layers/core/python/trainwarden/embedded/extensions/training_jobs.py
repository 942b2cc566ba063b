"""The training jobs of the embedded SageMaker: state, tags, transitions; no HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainwarden.embedded.training.run import TrainingRun
from trainwarden.model import Json

MAX_TAGS = 50
IN_PROGRESS = "InProgress"


class RefusedError(Exception):
    """A request that SageMaker answers with an error: its code and message."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Scope:
    """Whose jobs: names are unique within an account and region."""

    account: str
    region: str

    def arn(self, name: str) -> str:
        """ARN of the job of this name."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:training-job/{name}"


@dataclass
class Job:
    """One training job; ``description`` is what DescribeTrainingJob answers."""

    scope: Scope
    description: dict[str, Json]
    tags: dict[str, str] = field(default_factory=dict)
    run: TrainingRun | None = None

    @property
    def arn(self) -> str:
        """The job's ARN."""
        return str(self.description["TrainingJobArn"])

    @property
    def status(self) -> str:
        """``InProgress``, ``Stopping``, ``Stopped``, ``Completed`` or ``Failed``."""
        return str(self.description["TrainingJobStatus"])


class TrainingJobs:
    """All jobs; every change of state is told to ``on_change`` after it is visible."""

    def __init__(self, on_change: Callable[[Job, dict[str, Json]], None]) -> None:
        self._on_change = on_change
        self._lock = threading.RLock()
        self._jobs: dict[tuple[Scope, str], Job] = {}

    def create(
        self,
        scope: Scope,
        request: Mapping[str, Json],
        start: Callable[[Job], TrainingRun],
    ) -> Job:
        """Register a job and start it."""
        name = request["TrainingJobName"]
        tags = merged({}, request.get("Tags") or ())
        now = time.time()
        description = {
            **{k: v for k, v in request.items() if k != "Tags" and v is not None},
            "TrainingJobArn": scope.arn(name),
            "TrainingJobStatus": IN_PROGRESS,
            "CreationTime": now,
            "SecondaryStatusTransitions": [],
        }
        description.setdefault("StoppingCondition", {"MaxRuntimeInSeconds": 86_400})
        with self._lock:
            if (scope, name) in self._jobs:
                raise RefusedError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, "
                    f"and a training job with this name already exists ({scope.arn(name)})",
                )
            job = self._jobs[scope, name] = Job(scope, description, tags)
        self.enter(job, IN_PROGRESS, "Starting")
        job.run = start(job)
        job.run.start()
        return job

    def get(self, scope: Scope, name: str) -> Job:
        """Return the job of exactly this name."""
        with self._lock:
            job = self._jobs.get((scope, name))
        if job is None:
            raise RefusedError("ValidationException", "Requested resource not found.")
        return job

    def by_arn(self, arn: str) -> Job:
        """Return the job of this ARN."""
        with self._lock:
            for job in self._jobs.values():
                if job.arn == arn:
                    return job
        raise RefusedError("ValidationException", f"Could not find resource with arn {arn}")

    def all(self, scope: Scope) -> Iterator[Job]:
        """Yield the jobs of a scope, oldest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        return (job for job in jobs if job.scope == scope)

    def stop(self, job: Job) -> None:
        """Begin to stop a running job."""
        with self._lock:
            if job.status != IN_PROGRESS:
                raise RefusedError(
                    "ValidationException",
                    f"The request was rejected because the training job is in status {job.status}.",
                )
            detail = self._change(job, "Stopping", "Stopping", {})
        self._on_change(job, detail)
        if job.run is not None:
            job.run.stop()

    def enter(self, job: Job, status: str, secondary: str, **fields: Json) -> None:
        """Put a job into a state; what comes while it is stopping does not undo the stop."""
        with self._lock:
            if job.status == "Stopping" and status == IN_PROGRESS:
                status = "Stopping"
            detail = self._change(job, status, secondary, fields)
        self._on_change(job, detail)

    def close(self) -> None:
        """Kill every script that still runs and forget all jobs."""
        with self._lock:
            jobs = list(self._jobs.values())
            self._jobs.clear()
        for job in jobs:
            if job.run is not None:
                job.run.kill()

    def _change(
        self, job: Job, status: str, secondary: str, fields: Mapping[str, Json]
    ) -> dict[str, Json]:
        now = time.time()
        description = job.description
        transitions = description["SecondaryStatusTransitions"]
        if transitions:
            transitions[-1].setdefault("EndTime", now)
        transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": secondary})
        description.update(fields)
        description.update(
            TrainingJobStatus=status, SecondaryStatus=secondary, LastModifiedTime=now
        )
        if status in ("Completed", "Failed", "Stopped"):
            transitions[-1]["EndTime"] = now
            description.setdefault("TrainingEndTime", now)
        detail = {**description, "SecondaryStatusTransitions": [dict(t) for t in transitions]}
        return {**detail, "Tags": dict(job.tags)}


def merged(tags: Mapping[str, str], added: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Add tags as AWS does: later ones replace, ``aws:`` is reserved, at most 50."""
    reserved = [tag["Key"] for tag in added if tag["Key"].lower().startswith("aws:")]
    if reserved:
        raise RefusedError(
            "ValidationException", f"Tag keys must not begin with aws: (found {reserved[0]})"
        )
    result = {**tags, **{tag["Key"]: tag["Value"] for tag in added}}
    if len(result) > MAX_TAGS:
        raise RefusedError("ResourceLimitExceeded", f"A resource can have up to {MAX_TAGS} tags.")
    return result
