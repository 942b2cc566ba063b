from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from trainwarden.embedded import jobs, launcher
from trainwarden.embedded.launcher import Options, Server
from trainwarden.model import Json

T = TypeVar("T")
DEADLINE_S = 20.0
GRACE_S = 1.0


def until(condition: Callable[[], T]) -> T:
    """Ask again and again until the answer is true; fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.05)
    pytest.fail(f"did not come true within {DEADLINE_S:g} s")


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie that awaits its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("embedded")
    yield launcher.up(folder, Options(stop_grace_s=GRACE_S))
    launcher.down(folder)


class Lab:
    """Writes scripts and runs them as training jobs."""

    def __init__(self, server: Server, folder: Path, names: Iterator[str]) -> None:
        self.server, self.folder, self._names = server, folder, names
        self.sagemaker = server.client("sagemaker")

    def script(self, text: str) -> Path:
        file = self.folder / "train.py"
        file.write_text(text)
        return file

    def start(self, text: str, **options: Json) -> str:
        submission = jobs.Submission(self.script(text), name=next(self._names), **options)
        return jobs.submit(self.server, submission)

    def describe(self, job: str) -> dict[str, Json]:
        found: dict[str, Json] = self.sagemaker.describe_training_job(TrainingJobName=job)
        return found

    def ended(self, job: str) -> dict[str, Json]:
        def look() -> dict[str, Json] | None:
            found = self.describe(job)
            return found if found["TrainingJobStatus"] in jobs.ENDED else None

        found = until(look)
        assert found is not None
        return found

    def run(self, text: str, **options: Json) -> dict[str, Json]:
        return self.ended(self.start(text, **options))

    def log(self, job: str) -> str:
        file = self.server.state / "jobs" / job / "job.log"
        return file.read_text() if file.exists() else ""

    def says(self, job: str, text: str) -> None:
        until(lambda: text in self.log(job))


_NAMES = (f"job-{number}" for number in itertools.count())


@pytest.fixture
def lab(server: Server, tmp_path: Path) -> Lab:
    return Lab(server, tmp_path, _NAMES)
