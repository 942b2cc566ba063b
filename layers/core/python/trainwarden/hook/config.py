"""What the environment says: job, bucket, rank.

The only module of the hook that reads environment variables and SageMaker's files. Nothing here
touches the network: ``destination.py`` does, in the background.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden.errors import ConfigError, KeyGrammarError
from trainwarden.model import Json
from trainwarden.wire.identity import NONCE_VARIABLE, identity
from trainwarden.wire.keys import MAX_JOB_CHARS, MAX_WORKER, job_name
from trainwarden.wire.seal import seal_key

OUT_VARIABLE = "TRAINWARDEN_OUT"
OUT_HYPERPARAMETER = "trainwarden_out"
LOCAL_OUT = ".trainwarden/runs"
Report = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Who writes where.

    Attributes:
        job: Job name, valid.
        out: ``s3://bucket``, a folder, or empty: ask the account (SSM), then ``fallback``.
        fallback: Bucket of SageMaker's DebugHookConfig, used if the account names none.
        worker: Rank of this process.
        world_size: Processes of the job.
        identity: What ties the run to the job that SageMaker started.
        sagemaker: True if SageMaker started the process.
        hyperparameters: As SageMaker passed them.
        seal_key: What objects are sealed with; empty outside SageMaker. A secret: never in a log,
            a message or an object.
    """

    job: str
    out: str
    fallback: str = ""
    worker: int = 0
    world_size: int = 1
    identity: str = ""
    sagemaker: bool = False
    hyperparameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    seal_key: bytes = field(default=b"", repr=False)


def discover(
    job: str | None,
    out: str | os.PathLike[str] | None,
    *,
    report: Report,
    environ: Mapping[str, str] = os.environ,
) -> Place:
    """Find job name, destination and rank: arguments first, then the environment.

    Args:
        job: Job name; None to find or make one.
        out: ``s3://bucket`` or a folder; None to find one.
        report: Called with each problem; a way around it is taken. It may raise instead.
        environ: Environment variables.
    """
    base = _base(environ)
    hyperparameters = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in _read(base / "hyperparameters.json").items()
    }
    sagemaker = "TRAINING_JOB_NAME" in environ
    rank, world_size = _rank(environ, _read(base / "resourceconfig.json"))
    found = str(out or environ.get(OUT_VARIABLE) or _unquoted(hyperparameters, OUT_HYPERPARAMETER))
    fallback = str(_read(base / "debughookconfig.json").get("S3OutputPath") or "")
    if not found and not sagemaker:
        found = LOCAL_OUT
    arn, nonce = environ.get("TRAINING_JOB_ARN", ""), environ.get(NONCE_VARIABLE, "")
    return Place(
        job=_job(job or environ.get("TRAINING_JOB_NAME"), report),
        out=_destination(found, report),
        fallback=_bucket(fallback),
        worker=rank,
        world_size=world_size,
        identity=identity(arn, hyperparameters, nonce),
        sagemaker=sagemaker,
        hyperparameters=hyperparameters,
        seal_key=seal_key(arn, hyperparameters, nonce) if sagemaker else b"",
    )


def hook_parameters(environ: Mapping[str, str] = os.environ) -> dict[str, Json]:
    """Return ``HookParameters`` of the job's ``DebugHookConfig``; empty outside SageMaker."""
    found = _read(_base(environ) / "debughookconfig.json").get("HookParameters")
    return found if isinstance(found, dict) else {}


def collection_configurations(environ: Mapping[str, str] = os.environ) -> list[Json]:
    """Return ``CollectionConfigurations`` of the job; empty outside SageMaker."""
    found = _read(_base(environ) / "debughookconfig.json").get("CollectionConfigurations")
    return found if isinstance(found, list) else []


def _base(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml") / "input" / "config"


def _read(path: Path) -> dict[str, Json]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _unquoted(hyperparameters: Mapping[str, str], name: str) -> str:
    return hyperparameters.get(name, "").strip('"')  # the SageMaker SDK sends JSON strings


def _rank(environ: Mapping[str, str], resources: Mapping[str, Json]) -> tuple[int, int]:
    for rank, size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        if environ.get(rank, "").isdigit():
            world = environ.get(size, "")
            return min(int(environ[rank]), MAX_WORKER), int(world) if world.isdigit() else 1
    hosts = sorted(map(str, resources.get("hosts") or []))
    host = str(resources.get("current_host"))
    return (hosts.index(host), len(hosts)) if host in hosts else (0, 1)


def _job(name: str | None, report: Report) -> str:
    if not name:
        script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else ""
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return _cleaned(f"{_cleaned(script)[:36]}-{stamp}-{secrets.token_hex(2)}")
    try:
        return job_name(name)
    except KeyGrammarError as error:
        report(f"{error}; {_cleaned(name)!r} is used")
        return _cleaned(name)


def _cleaned(name: str) -> str:
    kept = re.sub(r"[^A-Za-z0-9]+", "-", name)[:MAX_JOB_CHARS].strip("-")
    return kept or "job"


def _bucket(uri: str) -> str:
    match = re.match(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/|$)", uri)
    return f"s3://{match[1]}" if match else ""


def _destination(out: str, report: Report) -> str:
    if "://" not in out:
        return out
    bucket = _bucket(out)
    if not bucket:
        report(str(ConfigError("out to be s3://bucket or a folder", repr(out))))
        return ""
    if out.rstrip("/") != bucket:
        report(f"out={out!r}: objects lie below jobs/ of the bucket, so {bucket!r} is used")
    return bucket


def environment(extra: Mapping[str, Json], place: Place) -> dict[str, Json]:
    """Describe the process for the manifest: versions, platform, commit, hyperparameters.

    Not those of a sealed run, which are part of its key; SageMaker tells them to whom it may.
    """
    told = {} if place.seal_key else {"hyperparameters": dict(place.hyperparameters)}
    return {
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "cpus": os.cpu_count() or 0,
        "commit": _commit(_working_folders()),
        "script": Path(sys.argv[0]).name if sys.argv else "",
        **told,
        **extra,
    }


def _working_folders() -> Iterable[Path]:
    try:
        folder = Path.cwd()
    except OSError:  # it was deleted
        return ()
    return (folder, *folder.parents)


def _commit(folders: Iterable[Path]) -> str:
    """Read the commit that is checked out, without starting git; empty if there is none."""
    for folder in folders:
        git = folder / ".git"
        try:
            head = (git / "HEAD").read_text().strip()
            return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
        except (OSError, ValueError):
            continue
    return ""
