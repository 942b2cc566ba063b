"""MiniStack with our extensions, in one process that binds 127.0.0.1 only.

``python -m trainwarden.embedded.server --state .trainwarden [--port 4566]``. The launcher starts
it; ``--state`` must exist. While it lives it holds a lock on ``server.lock`` there, so that
liveness never rests on a process id; ``state.json`` tells where it is.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from trainwarden.embedded.clients import ISOLATION
from trainwarden.embedded.settings import (
    ACCOUNT,
    KEY,
    REGION,
    STOP_GRACE_S,
    STOP_GRACE_VARIABLE,
    ServerSettings,
)

PLACE = "state.json"
LOCK = "server.lock"
EXIT_BUSY = 75  # another server holds the folder
EXIT_PORT = 76  # the port is taken
LOCK_TRIES, LOCK_PAUSE_S = 20, 0.02
KEEP_ALIVE_S = 75
SHUTDOWN_S = 2.0  # for requests in flight; a long poll must not hold up the end
logger = logging.getLogger("trainwarden.embedded")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m trainwarden.embedded.server")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--region", default=REGION)
    parser.add_argument("--account", default=ACCOUNT)
    parser.add_argument("--interpreter", action="append", default=[], metavar="RUNTIME=PATH")
    parser.add_argument(
        "--stop-grace", type=float, default=os.environ.get(STOP_GRACE_VARIABLE, STOP_GRACE_S)
    )
    return parser.parse_args(arguments)


def lock(folder: Path) -> IO[str] | None:
    """Take the folder for this process; None if another one has it."""
    file = (folder / LOCK).open("w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def wait_for_lock(folder: Path) -> IO[str] | None:
    """Take the folder; whoever only looks whether a server lives holds it for a moment, too."""
    for _ in range(LOCK_TRIES):
        file = lock(folder)
        if file is not None:
            return file
        time.sleep(LOCK_PAUSE_S)
    return None


def bind(port: int) -> socket.socket:
    """Bind the port before anything else starts, so that it cannot be lost in between."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def prepare_environment(settings: ServerSettings, scratch: Path) -> None:
    """Set what MiniStack reads at import, and remove what would mislead it or its functions."""
    for name in [n for n in os.environ if n.startswith(("AWS_", "MINISTACK_", "LOCALSTACK_"))]:
        if name != "AWS_CA_BUNDLE":
            del os.environ[name]
    os.environ.update(
        BIND_HOST="127.0.0.1",
        GATEWAY_PORT=str(settings.port),
        MINISTACK_HOST="localhost",
        MINISTACK_REGION=settings.region,
        MINISTACK_ACCOUNT_ID=settings.account,
        IOT_MTLS_ENABLED="0",
        SFTP_ENABLED="0",
        LAMBDA_EXECUTOR="local",
        DOCKER_HOST="unix:///nonexistent/docker.sock",  # never touch the user's containers
        STATE_DIR=str(scratch / "state"),
        S3_DATA_DIR=str(scratch / "s3"),
        AWS_ACCESS_KEY_ID=KEY,
        AWS_SECRET_ACCESS_KEY=KEY,
        TMPDIR=str(scratch),
        **ISOLATION,
    )
    tempfile.tempdir = str(scratch)


async def serve(listener: int) -> None:
    """Serve on this file descriptor until SIGTERM or SIGINT."""
    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config
    from ministack import app

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    config = Config()
    config.bind = [f"fd://{listener}"]
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.graceful_timeout = SHUTDOWN_S

    async def until_ended() -> None:
        await ended.wait()

    await hypercorn_serve(app.app, config, shutdown_trigger=until_ended)


def stop_children() -> None:
    """End training scripts and Lambda workers."""
    from ministack.core import lambda_runtime

    from trainwarden.embedded.extensions import sagemaker

    sagemaker.close()
    lambda_runtime.reset()


def run(settings: ServerSettings, listener: socket.socket, scratch: Path) -> None:
    """Serve to the end and leave no child behind."""
    prepare_environment(settings, scratch)
    from trainwarden.embedded.extensions import install

    install(settings)
    announce(settings, scratch)
    try:
        asyncio.new_event_loop().run_until_complete(serve(listener.detach()))
    finally:
        stop_children()
    logger.info("the embedded AWS has ended")


def announce(settings: ServerSettings, scratch: Path) -> None:
    """Write where we are, whole or not at all."""
    place = {
        "pid": os.getpid(),
        "port": settings.port,
        "endpoint": settings.endpoint,
        "region": settings.region,
        "account": settings.account,
        "scratch": str(scratch),
        "started": time.time(),
    }
    draft = settings.state / f"{PLACE}.draft"
    draft.write_text(json.dumps(place), encoding="utf-8")
    draft.rename(settings.state / PLACE)


def main(arguments: list[str] | None = None) -> int:
    """Run the server to its end and return the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    state = options.state.absolute()
    held = wait_for_lock(state)
    if held is None:
        return EXIT_BUSY
    try:
        listener = bind(options.port)
    except OSError as exc:
        print(f"127.0.0.1:{options.port}: {exc.strerror}", file=sys.stderr)  # noqa: T201 - for the launcher
        return EXIT_PORT
    settings = ServerSettings(
        state=state,
        port=listener.getsockname()[1],
        region=options.region,
        account=options.account,
        stop_grace_s=options.stop_grace,
        interpreters=dict(entry.split("=", 1) for entry in options.interpreter),
    )
    scratch = Path(tempfile.mkdtemp(prefix="trainwarden-"))
    try:
        run(settings, listener, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        (state / PLACE).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of MiniStack may wait on long polls for minutes; nothing is left to save.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
