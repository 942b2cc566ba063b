"""The key grammar of the bucket. Nobody else builds or takes apart a key.

jobs/<job>/manifest.tw
jobs/<job>/steps/<worker:04d>/<seq:010d>.tw
jobs/<job>/end/<worker:04d>.tw
jobs/<job>/tensors/<step:012d>/<worker:04d>.safetensors
jobs/<job>/control.json
"""

from __future__ import annotations

import re
from typing import NamedTuple

from trainwarden.errors import KeyGrammarError

MAX_JOB_CHARS = 63  # SageMaker: TrainingJobName
MAX_WORKER = 9_999
JOB = r"[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62}"
_JOB = re.compile(JOB)
_KEY = re.compile(
    rf"jobs/(?P<job>{JOB})/(?:(?P<manifest>manifest)\.tw"
    r"|steps/(?P<worker>[0-9]{4})/(?P<seq>[0-9]{10})\.tw"
    r"|end/(?P<end>[0-9]{4})\.tw)"
)


class ManifestKey(NamedTuple):
    """Key of a job's manifest."""

    job: str

    def __str__(self) -> str:
        return f"jobs/{job_name(self.job)}/manifest.tw"


class StepsKey(NamedTuple):
    """Key of object number ``seq`` (gap-free from 0) of a worker."""

    job: str
    worker: int
    seq: int

    def __str__(self) -> str:
        return f"jobs/{job_name(self.job)}/steps/{_worker(self.worker):04d}/{self.seq:010d}.tw"


class EndKey(NamedTuple):
    """Key of the object a worker writes last."""

    job: str
    worker: int

    def __str__(self) -> str:
        return f"jobs/{job_name(self.job)}/end/{_worker(self.worker):04d}.tw"


Key = ManifestKey | StepsKey | EndKey


def job_name(text: str) -> str:
    """Return ``text`` if it is a valid job name.

    Raises:
        KeyGrammarError: not 1 to 63 letters, digits and inner hyphens.
    """
    if len(text) <= MAX_JOB_CHARS and _JOB.fullmatch(text):
        return text
    raise KeyGrammarError(
        f"a job name of 1 to {MAX_JOB_CHARS} letters, digits and inner hyphens",
        repr(text[:80]),
        "name the job like a SageMaker training job: resnet50-2026-11-30",
    )


def _worker(rank: int) -> int:
    if 0 <= rank <= MAX_WORKER:
        return rank
    raise KeyGrammarError(f"a worker rank from 0 to {MAX_WORKER}", str(rank))


def parse(key: str) -> Key:
    """Take a key apart.

    Raises:
        KeyGrammarError: a key nobody here writes.
    """
    match = _KEY.fullmatch(key)
    if match is None or len(match["job"]) > MAX_JOB_CHARS:
        raise KeyGrammarError("a key of the jobs/ grammar", repr(key[:200]))
    if match["manifest"]:
        return ManifestKey(match["job"])
    if match["end"]:
        return EndKey(match["job"], int(match["end"]))
    return StepsKey(match["job"], int(match["worker"]), int(match["seq"]))


def steps_prefix(job: str, worker: int | None = None) -> str:
    """Prefix of a job's steps objects, of one worker or of all."""
    start = f"jobs/{job_name(job)}/steps/"
    return start if worker is None else f"{start}{_worker(worker):04d}/"


def tensors_key(job: str, step: int, worker: int) -> str:
    """Key of raw tensors saved on request."""
    return f"jobs/{job_name(job)}/tensors/{step:012d}/{_worker(worker):04d}.safetensors"


def control_key(job: str) -> str:
    """Key of the document through which the cloud talks to the hook."""
    return f"jobs/{job_name(job)}/control.json"
