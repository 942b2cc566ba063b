"""Starts, finds and ends the embedded AWS of a folder; its state lies in ``.trainwarden/``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwarden.embedded import extensions
from trainwarden.embedded.clients import ISOLATION, client
from trainwarden.embedded.server import EXIT_BUSY, EXIT_PORT, LOCK, PLACE, lock
from trainwarden.embedded.settings import KEY
from trainwarden.errors import BadInputError, NotFoundError, RetryableError

STATE = ".trainwarden"
LOG = "server.log"
OUTBOX = "outbox.jsonl"
OUTPUTS = "outputs.json"
JOBS = "jobs"
START_S = 60.0
END_S = 15.0  # it needs 2 for requests in flight and some for scripts and workers
POLL_S = 0.05
HEALTH = "/_ministack/health"
_children: dict[int, subprocess.Popen[bytes]] = {}  # servers started by this process
# Left by an earlier server of the folder; the CDK's assembly stays.
_OF_ONE_RUN = (LOG, OUTBOX, OUTPUTS, PLACE)


@dataclass(frozen=True)
class Server:
    """A running embedded AWS.

    Attributes:
        state: The folder ``.trainwarden``.
        pid: Its process.
        port: Of 127.0.0.1.
        endpoint: Its URL.
        region: The region it plays.
        account: The account it plays.
        scratch: Its own temporary folder.
        started: Seconds since the epoch, UTC.
    """

    state: Path
    pid: int
    port: int
    endpoint: str
    region: str
    account: str
    scratch: str
    started: float

    def environment(self) -> dict[str, str]:
        """Return the variables that make the AWS SDKs and CLIs talk to it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            **ISOLATION,
        }

    def client(self, service: str, **config: Any) -> Any:
        """Return a boto3 client that talks to it; ``config`` is botocore's."""
        return client(service, endpoint=self.endpoint, region=self.region, key=KEY, **config)

    @property
    def outputs(self) -> dict[str, str]:
        """Outputs of the deployed stack; empty before a deploy."""
        file = self.state / OUTPUTS
        found: dict[str, str] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        return found


@dataclass(frozen=True)
class Options:
    """How to start: see ``server.parse``."""

    port: int = 0
    stop_grace_s: float | None = None
    interpreters: dict[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return them as the server's command line."""
        found = ["--port", str(self.port)]
        if self.stop_grace_s is not None:
            found += ["--stop-grace", str(self.stop_grace_s)]
        for runtime, path in self.interpreters.items():
            found += ["--interpreter", f"{runtime}={path}"]
        return found


def state_folder(folder: Path) -> Path:
    """Return the state folder of a working folder."""
    return folder.absolute() / STATE


def find(folder: Path) -> Server | None:
    """Return the server of a folder, None if there is none that lives."""
    state = state_folder(folder)
    if not (state / LOCK).is_file() or not _held(state):
        return None
    try:
        return Server(state, **json.loads((state / PLACE).read_text("utf-8")))
    except FileNotFoundError:  # it is starting or ending
        return None


def running(folder: Path) -> Server:
    """Return the server of a folder.

    Raises:
        NotFoundError: none runs.
    """
    server = find(folder)
    if server is None:
        raise NotFoundError(
            f"no embedded AWS runs in {folder.absolute()}: start one with `trainwarden local up`"
        )
    return server


def up(folder: Path, options: Options | None = None) -> Server:
    """Start a server for a folder and wait until it answers.

    Raises:
        BadInputError: one runs already, the port is taken, or what it needs is not installed.
        RetryableError: it did not come up in time, or ended at once.
    """
    extensions.check()
    options = options or Options()
    state = state_folder(folder)
    state.mkdir(parents=True, exist_ok=True)
    if _held(state):
        raise _already_running(folder)
    _forget(state)
    with (state / LOG).open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "trainwarden.embedded.server",
                "--state",
                str(state),
                *options.arguments(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[process.pid] = process
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise _failed_to_start(folder, options, code)
        server = find(folder)
        if server is not None and server.pid == process.pid and _answers(server):
            return server
        time.sleep(POLL_S)
    process.kill()
    process.wait()
    raise RetryableError(f"the embedded AWS did not answer within {START_S:g} s: see {state / LOG}")


def down(folder: Path) -> bool:
    """End the server of a folder with all its processes; False if none ran.

    Raises:
        RetryableError: it would not end.
    """
    state = state_folder(folder)
    server = find(folder)
    if server is None:
        _reap()
        if state.is_dir():
            _remove_scratch(state)
            (state / PLACE).unlink(missing_ok=True)
        return False
    for number, patience in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        try:
            os.kill(server.pid, number)
        except ProcessLookupError:
            break
        if _ended(server, patience):
            break
    else:
        raise RetryableError(f"process {server.pid} does not end")
    # Scripts and workers die with the pipes that a killed server leaves behind.
    shutil.rmtree(server.scratch, ignore_errors=True)
    for name in (PLACE, OUTPUTS):
        (state / name).unlink(missing_ok=True)
    return True


def _ended(server: Server, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        _reap()
        if not _held(server.state):
            return True
        time.sleep(POLL_S)
    return False


def _reap() -> None:
    """Collect servers that were our own children and have ended, so that no zombie stays."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]


def _held(state: Path) -> bool:
    file = lock(state)
    if file is None:
        return True
    file.close()
    return False


def _answers(server: Server) -> bool:
    try:
        with urllib.request.urlopen(server.endpoint + HEALTH, timeout=2.0) as answer:  # noqa: S310 - our own http URL
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP
    except (urllib.error.URLError, OSError):
        return False


def _forget(state: Path) -> None:
    _remove_scratch(state)
    for name in _OF_ONE_RUN:
        (state / name).unlink(missing_ok=True)
    shutil.rmtree(state / JOBS, ignore_errors=True)


def _remove_scratch(state: Path) -> None:
    """Remove the temporary folder of a server that was killed."""
    file = state / PLACE
    if file.is_file():
        scratch = Path(json.loads(file.read_text("utf-8"))["scratch"])
        if scratch.name.startswith("trainwarden-"):
            shutil.rmtree(scratch, ignore_errors=True)


def _already_running(folder: Path) -> BadInputError:
    server = find(folder)
    where = f"one at {server.endpoint} (process {server.pid})" if server else "one that is starting"
    return BadInputError(
        f"no embedded AWS in {folder.absolute()}",
        where,
        "use it, or end it with `trainwarden local down`",
    )


def _failed_to_start(folder: Path, options: Options, code: int) -> Exception:
    log = state_folder(folder) / LOG
    if code == EXIT_BUSY:
        return _already_running(folder)
    if code == EXIT_PORT:
        return BadInputError(
            f"port {options.port} of 127.0.0.1 to be free",
            "another program listening there",
            "choose another with --port, or leave it out to take a free one",
        )
    tail = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-5:])
    return RetryableError(f"the embedded AWS ended at once with code {code}: {tail}\n(see {log})")
