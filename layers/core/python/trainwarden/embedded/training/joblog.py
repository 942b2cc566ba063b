"""A job's output: kept in a file and sent to CloudWatch Logs, as SageMaker does."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import InputLogEventTypeDef

GROUP = "/aws/sagemaker/TrainingJobs"
FLUSH_S = 0.5
MAX_EVENTS = 1_000  # PutLogEvents allows 10,000 events and 1 MiB
MAX_LINE_CHARS = 1_000  # keeps a full batch below 1 MiB even at three bytes a character
TAIL_LINES = 20


class JobLog:
    """Takes output as it comes; lines leave for CloudWatch Logs twice a second at most."""

    def __init__(self, file: Path, stream: str, client: CloudWatchLogsClient) -> None:
        self._file = file.open("ab")
        self._stream, self._client = stream, client
        self._rest = b""
        self._events: list[InputLogEventTypeDef] = []
        self._flushed_at = 0.0
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        with suppress(client.exceptions.ResourceAlreadyExistsException):  # jobs start side by side
            client.create_log_group(logGroupName=GROUP)
        client.create_log_stream(logGroupName=GROUP, logStreamName=stream)

    def __call__(self, chunk: bytes) -> None:
        """Take a piece of output, possibly empty: then only time has passed."""
        if chunk:
            self._file.write(chunk)
            self._file.flush()
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
        due = time.monotonic() - self._flushed_at >= FLUSH_S
        if self._events and (due or len(self._events) >= MAX_EVENTS):
            self._flush()

    def tail(self) -> str:
        """Return the last lines, for a failure reason."""
        return "\n".join(self._tail)

    def close(self) -> None:
        """Send what is left."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""
        self._flush()
        self._file.close()

    def _take(self, line: bytes) -> None:
        # A progress bar rewrites its line with carriage returns: the last state is what counts.
        text = line.rstrip(b"\r").rsplit(b"\r", 1)[-1].decode(errors="replace")
        if text:
            self._tail.append(text)
            now_ms = int(time.time() * 1000)
            self._events.append({"timestamp": now_ms, "message": text[:MAX_LINE_CHARS]})

    def _flush(self) -> None:
        for start in range(0, len(self._events), MAX_EVENTS):
            self._client.put_log_events(
                logGroupName=GROUP,
                logStreamName=self._stream,
                logEvents=self._events[start : start + MAX_EVENTS],
            )
        self._events = []
        self._flushed_at = time.monotonic()
