"""Submits training jobs to the embedded SageMaker through its API, and follows them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.embedded.launcher import JOBS, Server
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Json

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef

ENDED = ("Completed", "Failed", "Stopped")
POLL_S = 0.25
ROLE = "arn:aws:iam::000000000000:role/embedded-training"


@dataclass(frozen=True)
class Submission:
    """A training script and how to run it.

    Attributes:
        script: The script's file; it runs in its own folder.
        name: Job name; empty takes the script's name and the time.
        tags: Tags of the job.
        hyperparameters: Passed on the command line, as SageMaker does.
        environment: Further environment variables.
        max_runtime_s: After that it is stopped.
    """

    script: Path
    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    max_runtime_s: int = 86_400


def submit(server: Server, submission: Submission) -> str:
    """Create the training job and return its name.

    Raises:
        BadInputError: no such script, or SageMaker refuses the request.
    """
    from botocore.exceptions import ClientError, ParamValidationError

    script = submission.script.absolute()
    if not script.is_file():
        raise BadInputError("a training script", f"no file {submission.script}")
    name = submission.name or _name(script)
    client: SageMakerClient = server.client("sagemaker")
    bucket = server.outputs.get("BucketName", "embedded")
    own = {
        "sagemaker_program": json.dumps(script.name),
        "sagemaker_submit_directory": json.dumps(str(script.parent)),
    }
    try:
        client.create_training_job(
            TrainingJobName=name,
            RoleArn=ROLE,
            AlgorithmSpecification={"TrainingImage": "embedded", "TrainingInputMode": "File"},
            OutputDataConfig={"S3OutputPath": f"s3://{bucket}/models"},
            ResourceConfig={
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            StoppingCondition={"MaxRuntimeInSeconds": submission.max_runtime_s},
            HyperParameters={**submission.hyperparameters, **own},
            Environment=dict(submission.environment),
            Tags=[{"Key": key, "Value": value} for key, value in submission.tags.items()],
        )
    except (ClientError, ParamValidationError) as exc:
        raise BadInputError("a training job that SageMaker accepts", str(exc)) from exc
    return name


def describe(server: Server, name: str) -> DescribeTrainingJobResponseTypeDef:
    """Describe a job.

    Raises:
        NotFoundError: there is no such job.
    """
    from botocore.exceptions import ClientError

    client: SageMakerClient = server.client("sagemaker")
    try:
        return client.describe_training_job(TrainingJobName=name)
    except ClientError as exc:
        raise NotFoundError(f"the embedded SageMaker knows no job {name}") from exc


def summaries(server: Server) -> list[dict[str, Json]]:
    """Return every job, newest first: name, status, seconds since it was created."""
    client: SageMakerClient = server.client("sagemaker")
    pages = client.get_paginator("list_training_jobs").paginate()
    return [
        {
            "job": found["TrainingJobName"],
            "status": found["TrainingJobStatus"],
            "secondary": found.get("SecondaryStatus", ""),
            "seconds": round(
                found.get("TrainingEndTime", datetime.now(timezone.utc)).timestamp()
                - found["CreationTime"].timestamp()
            ),
        }
        for page in pages
        for found in page["TrainingJobSummaries"]
    ]


def follow(server: Server, name: str, on_line: Callable[[str], None]) -> Mapping[str, Json]:
    """Hand on a job's output line by line until it has ended; return its description."""
    reader = LogReader(server.state / JOBS / name / "job.log")
    while True:
        found = describe(server, name)
        for line in reader.lines(last=found["TrainingJobStatus"] in ENDED):
            on_line(line)
        if found["TrainingJobStatus"] in ENDED:
            return found
        time.sleep(POLL_S)


class LogReader:
    """Reads what was added to a file since the last look."""

    def __init__(self, file: Path) -> None:
        self._file, self._offset, self._rest = file, 0, ""

    def lines(self, *, last: bool = False) -> list[str]:
        """Return the whole lines that came; with ``last`` also one without its end."""
        if self._file.is_file():
            with self._file.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
            self._offset += len(added)
            self._rest += added.decode(errors="replace")
        *whole, self._rest = self._rest.split("\n")
        if last and self._rest:
            whole, self._rest = [*whole, self._rest], ""
        return whole


def _name(script: Path) -> str:
    stem = re.sub(r"[^A-Za-z0-9]+", "-", script.stem).strip("-") or "job"
    return f"{stem[:40].rstrip('-')}-{time.strftime('%Y-%m-%d-%H-%M-%S')}"
