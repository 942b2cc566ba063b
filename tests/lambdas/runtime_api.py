"""Lambda's Runtime API (2018-06-01), as much of it as AWS's own runtime client asks for.

A function is a process of ``awslambdaric``: it asks for the next event, answers, and asks again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

DEADLINE_S = 60.0  # for an answer; a busy machine is no failure
TIMEOUT_S = 30.0  # what the function is told


class Answer(NamedTuple):
    """What a function posted: ``response``, ``error``, or ``init`` if it could not start.

    ``exit`` with its status if it ended.
    """

    kind: str
    body: Any


class Function:
    """One execution environment of a function.

    Args:
        handler: As in the template: ``lambdas.evaluator.handler.handler``.
        path: Folders that Python imports from; the first is the function's own.
        environment: Its variables; nothing else of this process's reaches it.
    """

    def __init__(
        self, handler: str, path: Sequence[Path], environment: Mapping[str, str], log: Path
    ) -> None:
        self._events: Queue[bytes] = Queue()
        self._answers: Queue[Answer] = Queue()
        self._sent = 0
        self.log = log
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._requests())
        self._server.daemon_threads = True
        self._server.block_on_close = False  # one thread waits for an event that never comes
        Thread(target=self._server.serve_forever, daemon=True).start()
        own = {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_address[1]}",
            "AWS_LAMBDA_FUNCTION_NAME": "trainwarden",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "LAMBDA_TASK_ROOT": str(path[0]),
            "PYTHONPATH": ":".join(map(str, path)),
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                # -S: no packages but those of the path, and no editable installs among them.
                [sys.executable, "-S", "-m", "awslambdaric", handler],
                cwd=path[0],
                env={**environment, **own},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        """End the process and the API."""
        self._process.kill()
        self._process.wait()
        self._server.shutdown()
        self._server.server_close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def invoke(self, event: Any) -> Answer:
        """Hand the event over and wait for what comes of it."""
        self._events.put(json.dumps(event).encode())
        return self.wait()

    def wait(self) -> Answer:
        """Wait for the next answer, also one that nobody asked for: that it could not start."""
        try:
            return self._answers.get(timeout=DEADLINE_S)
        except Empty:
            raise AssertionError(f"no answer: {self.log.read_text()}") from None

    def _watch(self) -> None:
        self._answers.put(Answer("exit", self._process.wait()))

    def _requests(self) -> type[BaseHTTPRequestHandler]:
        function = self

        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # invocation/next
                event = function._events.get()
                function._sent += 1
                headers = {
                    "Content-Type": "application/json",  # the client dies without it
                    "Lambda-Runtime-Aws-Request-Id": f"request-{function._sent}",
                    "Lambda-Runtime-Deadline-Ms": str(round((time.time() + TIMEOUT_S) * 1000)),
                    "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:1:function:f",
                }
                self._answer(200, event, headers)

            def do_POST(
                self,
            ) -> None:  # invocation/<id>/response, invocation/<id>/error, init/error
                body = self.rfile.read(int(self.headers["Content-Length"]))
                *_, before, last = self.path.split("/")
                self._answer(202, b"{}", {})
                kind = "init" if before == "init" else last
                function._answers.put(Answer(kind, json.loads(body)))

            def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        return Requests
