"""A network that fails: a proxy on loopback in front of an S3, in a process of its own.

What happens to a request depends on the seed and on its number only.
"""

from __future__ import annotations

import http.client
import multiprocessing
import random
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

PASSED, BUSY, RESET, ANSWER_LOST, SLOW = "passed", "503", "reset", "answer lost", "slow"
OUTAGE = "outage"
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"
)
TIMEOUT_S = 10.0
_ABORT = struct.pack("ii", 1, 0)  # linger for no time: the peer gets a reset


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong.

    Attributes:
        busy: Share of requests answered with 503, unread by the S3.
        reset: Share whose connection is reset before the S3 hears of them.
        answer_lost: Share that the S3 carries out, and whose connection is reset then.
        slow: Share that takes ``latency_s`` longer.
        latency_s: Seconds.
        seed: Of the draw.
    """

    busy: float = 0.1
    reset: float = 0.05
    answer_lost: float = 0.05
    slow: float = 0.1
    latency_s: float = 0.2
    seed: int = 0

    def of(self, number: int) -> str:
        """Say what happens to a request."""
        drawn = random.Random(self.seed * 1_000_003 + number).random()  # noqa: S311 - no secret
        for share, fault in (
            (self.busy, BUSY),
            (self.reset, RESET),
            (self.answer_lost, ANSWER_LOST),
            (self.slow, SLOW),
        ):
            if drawn < share:
                return fault
            drawn -= share
        return PASSED


class Network:
    """A running proxy; a context manager.

    Args:
        endpoint: URL of the S3.
        faults: What goes wrong.
    """

    def __init__(self, endpoint: str, faults: Faults) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(endpoint, faults, theirs), daemon=True)
        self._process.start()
        self.endpoint = f"http://127.0.0.1:{self._ours.recv()}"

    def outage(self, *, on: bool) -> None:
        """Reset every connection, until it is over."""
        self._ask(("outage", on))

    def counts(self) -> Counter[str]:
        """Return how many requests met which fault."""
        return Counter(self._ask(("counts", None)))

    def _ask(self, question: tuple[str, Any]) -> Any:
        self._ours.send(question)
        return self._ours.recv()

    def __enter__(self) -> Network:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._ours.send(("end", None))
        self._process.join(TIMEOUT_S)


def _serve(endpoint: str, faults: Faults, pipe: Connection) -> None:
    """Serve until told to end; in the process of the proxy."""
    place = urlsplit(endpoint)
    server = _Server(f"{place.hostname}:{place.port}", faults)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])
    while True:
        try:
            what, value = pipe.recv()
        except EOFError:  # who started this process is gone
            return
        if what == "end":
            return
        if what == "outage":
            server.outage = value
        pipe.send(dict(server.counts))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str, faults: Faults) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.faults, self.outage = upstream, faults, False
        self.counts = Counter[str]()
        self._lock, self._number = threading.Lock(), 0

    def next_fault(self) -> str:
        with self._lock:
            fault = OUTAGE if self.outage else self.faults.of(self._number)
            self._number += not self.outage
            self.counts[fault] += 1
        return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.next_fault()
        if fault in {RESET, OUTAGE}:
            self._abort()
        elif fault == BUSY:
            self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN)
        else:
            if fault == SLOW:
                time.sleep(self.server.faults.latency_s)
            status, headers, answer = self._forward(body)
            if fault == ANSWER_LOST:
                self._abort()
            else:
                self._answer(status, headers, answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815 - the base's names

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=TIMEOUT_S)
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            upstream.request(self.command, self.path, body, headers)
            found = upstream.getresponse()
            kept = {
                name: value
                for name, value in found.getheaders()
                if name.lower() not in {"connection", "transfer-encoding", "content-length"}
            }
            return found.status, kept, found.read()
        finally:
            upstream.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _abort(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self.connection.close()
        self.close_connection = True
        self.wfile = open("/dev/null", "wb")  # noqa: SIM115, PTH123 - what is left is flushed there
