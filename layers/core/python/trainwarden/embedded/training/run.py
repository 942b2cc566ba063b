"""One training job from Starting to its end, in one thread."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from trainwarden.embedded.training import environment, transfer
from trainwarden.embedded.training.environment import Cloud
from trainwarden.embedded.training.folders import HOST, Folders
from trainwarden.embedded.training.joblog import JobLog
from trainwarden.embedded.training.process import Ended, Limits, ScriptProcess
from trainwarden.errors import BadInputError
from trainwarden.model import Json

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MAX_FAILURE_CHARS = 1_024  # SageMaker: FailureReason
DEFAULT_RUNTIME_S = 86_400.0  # SageMaker: StoppingCondition.MaxRuntimeInSeconds


class Listener(Protocol):
    """Hears of every change of a job's state."""

    def __call__(self, status: str, secondary: str, **fields: Json) -> None:
        """Take the new state; ``fields`` are members of DescribeTrainingJob's answer."""
        ...


@dataclass(frozen=True)
class Machine:
    """The machine that jobs run on.

    Attributes:
        cloud: Where scripts find AWS.
        jobs: Folder that holds one base folder per job.
        grace_s: From SIGTERM to SIGKILL; 120 on SageMaker.
        python: Interpreter of the scripts.
    """

    cloud: Cloud
    jobs: Path
    grace_s: float = 120.0
    python: str = sys.executable


class TrainingRun:
    """Start it once; ``stop`` and ``kill`` may come from any thread at any time."""

    def __init__(
        self, request: Mapping[str, Json], arn: str, machine: Machine, listener: Listener
    ) -> None:
        self._request, self._arn, self._machine = request, arn, machine
        self._listener = listener
        self._name = str(request["TrainingJobName"])
        self.folders = Folders(machine.jobs / self._name)
        self._lock = threading.Lock()
        self._process: ScriptProcess | None = None
        self._stop_asked = self._killed = False
        self._thread = threading.Thread(target=self._run, name=f"job-{self._name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the script to end."""
        with self._lock:
            self._stop_asked = True
            if self._process is not None:
                self._process.stop()

    def kill(self, timeout_s: float = 5.0) -> None:
        """End the script now, wait until it has gone, and tell nobody."""
        self._killed = True
        self.stop()
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout_s)

    def _run(self) -> None:
        try:
            self._train()
        except (BadInputError, ClientError, BotoCoreError) as exc:
            self._fail(f"ClientError: {exc}")
        except OSError as exc:
            self._fail(f"InternalServerError: {exc}")
        finally:
            if self._process is not None:  # it still runs if its log could not be written
                self._process.kill()

    def _tell(self, status: str, secondary: str, **fields: Json) -> None:
        if not self._killed:
            self._listener(status, secondary, **fields)

    def _train(self) -> None:
        s3: S3Client = self._machine.cloud.client("s3")
        self._tell("InProgress", "Downloading")
        if self.folders.base.exists():  # of a job that a reset has forgotten
            shutil.rmtree(self.folders.base)
        self.folders.base.mkdir(parents=True)
        self.folders.create(self._request)
        program = transfer.fetch_code(self._request, self.folders, s3)
        transfer.fetch_data(self._request, self.folders, s3)
        stream = f"{self._name}/{HOST}-{int(time.time())}"
        log = JobLog(self.folders.log, stream, self._machine.cloud.client("logs"))
        started = time.time()
        try:
            process = self._start_process(program)
            if process is None:
                self._tell("Stopped", "Stopped")
                return
            self._tell("InProgress", "Training", TrainingStartTime=started)
            ended = process.follow(log)
        finally:
            log.close()
        self._finish(ended, started, log.tail(), s3)

    def _start_process(self, program: str) -> ScriptProcess | None:
        with self._lock:
            if self._stop_asked:  # it came while the job was downloading
                return None
            self._process = ScriptProcess(
                [self._machine.python, program, *environment.arguments(self._request)],
                cwd=self.folders.code,
                env=environment.variables(
                    self._request, self._arn, self.folders, program, self._machine.cloud
                ),
                limits=Limits(self._runtime_s(), self._machine.grace_s),
            )
            return self._process

    def _runtime_s(self) -> float:
        condition = self._request.get("StoppingCondition") or {}
        return float(condition.get("MaxRuntimeInSeconds", DEFAULT_RUNTIME_S))

    def _finish(self, ended: Ended, started: float, tail: str, s3: S3Client) -> None:
        seconds = max(1, round(time.time() - started))
        fields: dict[str, Json] = {
            "TrainingEndTime": time.time(),
            "TrainingTimeInSeconds": seconds,
            "BillableTimeInSeconds": seconds,
        }
        failed = ended.exit_code != 0 and not ended.stopped
        if failed:
            fields["FailureReason"] = self._failure(ended.exit_code, tail)
        self._tell("Stopping" if ended.stopped else "InProgress", "Uploading")
        artifact = transfer.upload_results(self._request, self.folders, s3)
        if artifact:
            fields["ModelArtifacts"] = {"S3ModelArtifacts": artifact}
        if ended.timed_out:
            self._tell("Stopped", "MaxRuntimeExceeded", **fields)
        elif ended.stopped:
            self._tell("Stopped", "Stopped", **fields)
        else:
            status = "Failed" if failed else "Completed"
            self._tell(status, status, **fields)

    def _failure(self, exit_code: int, tail: str) -> str:
        file = self.folders.failure
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else tail
        suffix = f", exit code: {exit_code}"
        head = "AlgorithmError: "
        # The end of a traceback says more than its beginning.
        return head + text[-(MAX_FAILURE_CHARS - len(head) - len(suffix)) :] + suffix

    def _fail(self, reason: str) -> None:
        self._tell("Failed", "Failed", FailureReason=reason[:MAX_FAILURE_CHARS])
