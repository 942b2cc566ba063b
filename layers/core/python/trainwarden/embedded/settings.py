"""Settings of the embedded AWS's server process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REGION = "us-east-1"
ACCOUNT = "000000000000"
KEY = "test"  # MiniStack's root user; id and secret alike
STOP_GRACE_S = 120.0  # SageMaker: from SIGTERM to SIGKILL
STOP_GRACE_VARIABLE = "TRAINWARDEN_STOP_GRACE_S"


@dataclass(frozen=True)
class ServerSettings:
    """What a server is started with.

    Attributes:
        state: Folder for everything that outlives a request: logs, jobs, the outbox.
        port: Of 127.0.0.1.
        region: Region whose AWS is played.
        account: Account that callers without an account of their own use.
        stop_grace_s: From SIGTERM to SIGKILL of a stopped training job.
        interpreters: Lambda runtime → interpreter, where it is not the server's own.
        training_python: Interpreter of training scripts.
    """

    state: Path
    port: int
    region: str = REGION
    account: str = ACCOUNT
    stop_grace_s: float = STOP_GRACE_S
    interpreters: Mapping[str, str] = field(default_factory=dict)
    training_python: str = sys.executable

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def jobs(self) -> Path:
        """Folder of the training jobs' base folders."""
        return self.state / "jobs"

    @property
    def outbox(self) -> Path:
        """JSON lines: every e-mail and SMS that AWS would have sent."""
        return self.state / "outbox.jsonl"
