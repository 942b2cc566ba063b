"""A training script as a supervised process whose output is read line by line."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SUPERVISOR = Path(__file__).with_name("supervisor.py")
POLL_S = 0.1  # how late a deadline is noticed at most
DRAIN_S = 1.0  # a detached grandchild may hold the pipe open for ever


@dataclass(frozen=True)
class Limits:
    """How long a script may take.

    Attributes:
        runtime_s: MaxRuntimeInSeconds, counted from the start.
        grace_s: From SIGTERM to SIGKILL.
    """

    runtime_s: float
    grace_s: float


@dataclass(frozen=True)
class Ended:
    """How a script ended: its exit code (128 + n for signal n), and whether we ended it."""

    exit_code: int
    stopped: bool
    timed_out: bool


class ScriptProcess:
    """Start it, ``follow`` it from one thread, ``stop`` or ``kill`` it from any."""

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], limits: Limits
    ) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._stopped_at: float | None = None
        self._timed_out = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Send SIGTERM; ``follow`` sends SIGKILL when the grace period is over."""
        with self._lock:
            if self._stopped_at is None:
                self._stopped_at = time.monotonic()
                self._process.terminate()

    def kill(self) -> None:
        """End the script and all it started, now."""
        with self._lock:
            if self._process.stdin is not None and not self._process.stdin.closed:
                self._process.stdin.close()

    def wait(self, timeout_s: float) -> None:
        """Wait until the supervisor has gone, and all it watched over with it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def follow(self, on_output: Callable[[bytes], None]) -> Ended:
        """Hand on the output as it comes, possibly empty, until the script has ended."""
        stdout = self._process.stdout
        if stdout is None:
            raise RuntimeError("the process was started without a pipe")
        reading, drain_until = True, float("inf")
        while (reading or self._process.poll() is None) and time.monotonic() < drain_until:
            if reading:
                reading = self._read(stdout, on_output)
            else:  # it closed its output but lives on
                time.sleep(POLL_S)
            if self._process.poll() is not None and drain_until == float("inf"):
                drain_until = time.monotonic() + DRAIN_S
            self._enforce_limits()
        code = self._process.wait()
        self.kill()
        stdout.close()
        return Ended(code, self._stopped_at is not None, self._timed_out)

    @staticmethod
    def _read(stdout: IO[bytes], on_output: Callable[[bytes], None]) -> bool:
        ready, _, _ = select.select([stdout], [], [], POLL_S)
        chunk = os.read(stdout.fileno(), 65_536) if ready else b""
        on_output(chunk)
        return bool(chunk) or not ready

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        if self._stopped_at is None and now - self._started > self._limits.runtime_s:
            self._timed_out = True
            self.stop()
        if self._stopped_at is not None and now - self._stopped_at > self._limits.grace_s:
            self.kill()
