"""Background upload: bounded memory, retries, gap-free numbers; training never waits for it.

The training thread only appends to a deque and puts a token into a ``SimpleQueue``. Both may be
done in a signal handler that interrupted the very same call, so there is no lock to deadlock on.
Everything else happens in one daemon thread:

    manifest (before the first object, and when the layout grew) → steps objects → end object

An object gets its number just before the first PUT and is put again, byte for byte, until it is
stored; so numbers have no gaps whatever fails. What does not fit into memory meanwhile is dropped,
oldest first, and counted in the next object.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from trainwarden.errors import (
    BadInputError,
    KeyGrammarError,
    MalformedObjectError,
    RetryableError,
    TrainwardenError,
)
from trainwarden.model import Layout, Observation
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.control import MAX_CONTROL_BYTES, Control
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey, control_key, parse, steps_prefix
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, End, Manifest

_OVERHEAD_BYTES = 512  # header, scalars and Python objects of one observation, roughly


@dataclass(frozen=True)
class Limits:
    """When is sent, how much may wait.

    Attributes:
        flush_s: Longest time an observation waits; reached by doubling from ``first_flush_s``,
            so that the first verdict comes within seconds.
        first_flush_s: Longest wait of the first observation.
        flush_steps: Observations that make an object.
        flush_bytes: Uncompressed bytes that make an object; about five times what is stored.
        pending_bytes: Uncompressed bytes that may wait before the oldest are dropped.
        retry_s: First pause after a failed request; doubles up to ``max_retry_s``.
        max_retry_s: Longest pause between two tries.
        control_s: Pause between two looks at ``control.json``.
    """

    flush_s: float = 10.0
    first_flush_s: float = 1.0
    flush_steps: int = 50
    flush_bytes: int = 5 * 1024 * 1024
    pending_bytes: int = 64 * 1024 * 1024
    retry_s: float = 0.5
    max_retry_s: float = 30.0
    control_s: float = 20.0


@dataclass
class _Sending:
    """The object that has its number; it is put until it is stored."""

    seq: int
    body: bytes
    layout: Layout


class Uploader:
    """Uploads one worker's observations, then its end object.

    Args:
        open_store: Opens the destination; called in the background, again after an error.
        manifest: Without its layout, which comes with the observations; job and run are final.
        worker: Rank of this process; rank 0 writes the manifest.
        limits: When is sent, how much may wait.
        report: Told each kind of trouble once, in one sentence, and that it is over.
        on_control: Called in the background with a control document that changed.
    """

    def __init__(
        self,
        open_store: Callable[[], ObjectStore],
        manifest: Manifest,
        *,
        worker: int = 0,
        limits: Limits | None = None,
        report: Callable[[str], None] = lambda _: None,
        on_control: Callable[[Control], None] | None = None,
    ) -> None:
        self.counters: dict[str, int] = {}  # for the end object: since the start
        self.error: TrainwardenError | None = None  # the trouble of the moment
        self.stored_all = False
        self._open_store, self._manifest, self._worker = open_store, manifest, worker
        self._limits, self._report, self._on_control = limits or Limits(), report, on_control
        self._waiting: deque[tuple[int, float, Observation]] = deque()
        self._tokens: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        # Two counters with one writer each instead of one with two: no lock is needed.
        self._bytes_in = self._bytes_out = self._bytes_dropped = 0
        self._news: deque[tuple[str, int]] = deque()  # drops to be counted in the next object
        self._reason, self._over, self._hurried = "", False, False
        self._store: ObjectStore | None = None
        self._written = Layout()
        self._manifest_put = False
        self._seq = 0
        self._sending: _Sending | None = None
        self._flushes: list[threading.Event] = []
        self._failures, self._not_before = 0, 0.0
        self._flush_s, self._control_at, self._control_seen = self._limits.first_flush_s, 0.0, 0
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="trainwarden", daemon=True)
        self._thread.start()

    # ---- called by the training thread, also from signal handlers -------------------------

    def submit(self, observation: Observation) -> None:
        """Hand over an observation; drops the oldest waiting ones if too much waits."""
        size = observation.stats.nbytes + _OVERHEAD_BYTES
        self._bytes_in += size
        self._waiting.append((size, time.monotonic(), observation))
        while self._bytes_in - self._bytes_out - self._bytes_dropped > self._limits.pending_bytes:
            try:
                dropped, _, _ = self._waiting.popleft()
            except IndexError:
                break
            self._bytes_dropped += dropped
            self.count("steps")
        self._tokens.put(None)

    def count(self, reason: str, number: int = 1) -> None:
        """Count something that could not be saved; told in the next object."""
        self._news.append((reason, number))

    def flush(self, timeout_s: float) -> bool:
        """Send what waits now; True if all of it was stored within ``timeout_s``."""
        if not self.alive:
            return False
        done = threading.Event()
        self._tokens.put(done)
        return done.wait(timeout_s) and self.error is None

    def close(self, reason: str, timeout_s: float) -> bool:
        """Send what waits and the end object; True if all of it was stored within ``timeout_s``."""
        self._reason = self._reason or reason
        self._tokens.put(None)
        if self.alive:
            self._thread.join(timeout_s)
        return self.stored_all

    @property
    def alive(self) -> bool:
        """False in a forked child, and after the end or a crash of the thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    # ---- the background thread ------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over:
                self._wait()
                self._work()
        except Exception as error:  # noqa: BLE001 - the thread's outermost guard
            self.error = TrainwardenError(f"upload crashed: {error!r}")
            self._report(f"the upload stopped: {error!r}; training goes on unwatched")
        finally:
            self._waiting.clear()
            self._release(force=True)

    def _wait(self) -> None:
        """Sleep until there is something to do."""
        now = time.monotonic()
        if self._reason and not self._hurried:  # the end does not wait for the next try
            self._hurried, self._not_before = True, 0.0
        until = now + self._limits.control_s
        if self._sending or self._due(now):
            until = max(self._not_before, now)
        elif self._waiting:
            until = min(until, self._first_since() + self._flush_s)
        with suppress(queue.Empty):
            token = self._tokens.get(timeout=max(until - now, 0.0))
            while True:
                if token is not None:
                    self._flushes.append(token)
                token = self._tokens.get_nowait()

    def _first_since(self) -> float:
        try:
            return self._waiting[0][1]
        except IndexError:  # the training thread dropped it just now
            return time.monotonic()

    def _due(self, now: float) -> bool:
        if self._reason or (self._flushes and self._waiting):
            return True
        if not self._waiting:
            return False
        waits = self._bytes_in - self._bytes_out - self._bytes_dropped
        return (
            len(self._waiting) >= self._limits.flush_steps
            or waits >= self._limits.flush_bytes
            or now - self._first_since() >= self._flush_s
        )

    def _work(self) -> None:
        now = time.monotonic()
        if now < self._not_before:
            return
        try:
            while self._sending or self._due(time.monotonic()):
                if not self._send():
                    break
            self._recovered()
            self._release()
            if self._reason and not self._waiting and not self._sending:
                self._end()
            elif now >= self._control_at:
                self._control_at = now + self._limits.control_s
                self._look_at_control()
        except (RetryableError, BadInputError) as error:
            self._failed(error)

    def _send(self) -> bool:
        """Put one object; False if nothing waits."""
        store = self._opened()
        self._sending = self._sending or self._next_object()
        sending = self._sending
        if sending is None:
            return False
        self._put_manifest(store, sending.layout)
        store.put(str(StepsKey(self._manifest.job, self._worker, sending.seq)), sending.body)
        self._seq, self._sending = sending.seq + 1, None
        self._flush_s = min(self._flush_s * 2, self._limits.flush_s)
        return True

    def _opened(self) -> ObjectStore:
        if self._store is None:
            store = self._open_store()
            self._resume(store)
            self._store = store
        return self._store

    def _resume(self, store: ObjectStore) -> None:
        """Continue the numbers, and the run, of an earlier start of the same job."""
        job, last = self._manifest.job, -1
        try:
            for text in store.keys(steps_prefix(job, self._worker)):
                with suppress(KeyGrammarError):
                    key = parse(text)
                    last = max(last, key.seq if isinstance(key, StepsKey) else -1)
            if last < 0:
                return
            body = store.get(str(ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
            earlier = Manifest.from_bytes(body) if body else None
        except (BadInputError, MalformedObjectError):
            return  # the role may write only: a job that starts for the first time has no objects
        self._seq = last + 1
        self.count("restarts")
        if earlier and earlier.identity == self._manifest.identity:
            self._manifest = replace(self._manifest, run=earlier.run, created=earlier.created)
            self._written, self._manifest_put = earlier.layout, True

    def _put_manifest(self, store: ObjectStore, layout: Layout) -> None:
        """Put the manifest if a reader of the next object would not find its rows in it."""
        have, need = self._written.tensors, layout.tensors
        known = have is need or have[: len(need)] == need
        if self._worker or (self._manifest_put and known):
            return
        manifest = replace(self._manifest, layout=layout)
        store.put(str(ManifestKey(manifest.job)), manifest.to_bytes())
        self._written, self._manifest_put = layout, True

    def _next_object(self) -> _Sending | None:
        """Take what waits, as much as one object holds, and give it the next number."""
        taken: list[tuple[int, float, Observation]] = []
        size = 0
        while self._waiting and len(taken) < self._limits.flush_steps:
            if taken and size + self._waiting[0][0] > self._limits.flush_bytes:
                break
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # the training thread dropped it just now
                break
            size += taken[-1][0]
            self._bytes_out += taken[-1][0]
        while taken:
            dropped = self._counted()
            observations = tuple(observation for _, _, observation in taken)
            try:
                body = self._encode(observations, dropped)
                self._total(dropped)
                return _Sending(self._seq, body, observations[-1].layout)
            except MalformedObjectError as error:
                self._news.extend(dropped.items())
                if len(taken) == 1:
                    self.count("unwritable")
                    self._report(f"a saved step could not be written: {error}")
                # Halves until the one that no object can hold is alone.
                kept = len(taken) // 2
                for one in reversed(taken[kept:] if kept else []):
                    self._bytes_out -= one[0]
                    self._waiting.appendleft(one)
                taken = taken[:kept]
        return None

    def _encode(self, observations: tuple[Observation, ...], dropped: Mapping[str, int]) -> bytes:
        return encode(
            StepsObject(
                job=self._manifest.job,
                worker=self._worker,
                seq=self._seq,
                run=self._manifest.run,
                observations=observations,
                dropped=dropped,
            )
        )

    def _counted(self) -> dict[str, int]:
        """Take the news of what was dropped."""
        found: dict[str, int] = {}
        for _ in range(len(self._news)):
            reason, number = self._news.popleft()
            found[reason] = found.get(reason, 0) + number
        return found

    def _total(self, dropped: Mapping[str, int]) -> None:
        for reason, number in dropped.items():
            self.counters[reason] = self.counters.get(reason, 0) + number

    def _end(self) -> None:
        store = self._opened()
        self._put_manifest(store, self._written)
        self._total(self._counted())
        end = End(
            job=self._manifest.job,
            worker=self._worker,
            run=self._manifest.run,
            last_seq=self._seq - 1,
            reason=self._reason,
            time=time.time(),
            counters=self.counters,
        )
        store.put(str(EndKey(end.job, end.worker)), end.to_bytes())
        self.stored_all = self._over = True

    def _look_at_control(self) -> None:
        if self._on_control is None or not self._manifest_put:
            return
        try:
            key = control_key(self._manifest.job)
            body = self._opened().get(key, max_bytes=MAX_CONTROL_BYTES)
            control = Control.from_bytes(body) if body else None
        except (BadInputError, RetryableError):
            return  # the role may write only, or somebody wrote nonsense: there is no advice
        if control and control.version > self._control_seen:
            self._control_seen = control.version
            self._on_control(control)

    def _failed(self, error: RetryableError | BadInputError) -> None:
        self._failures += 1
        refused = isinstance(error, BadInputError)
        pause = self._limits.retry_s * 2 ** min(self._failures - 1, 20)
        # What is refused may be allowed later (a policy, new credentials), but seldom in seconds.
        self._not_before = time.monotonic() + min(
            pause * (4 if refused else 1), self._limits.max_retry_s
        )
        self.counters["retries"] = self.counters.get("retries", 0) + 1
        if self._reason and self._hurried and refused:
            self._over = True  # refused at the very end: nothing will change while we wait
        if self.error is None and (refused or self._failures >= 3):  # noqa: PLR2004 - hiccups pass
            self.error = error
            self._report(
                f"nothing can be uploaded: {error}; training goes on, uploading is tried again"
            )

    def _recovered(self) -> None:
        if self.error is not None:
            self._report("the upload works again")
        self.error, self._failures, self._not_before = None, 0, 0.0

    def _release(self, *, force: bool = False) -> None:
        """Let those go on who wait in ``flush``."""
        if force or not (self._waiting or self._sending):
            for done in self._flushes:
                done.set()
            self._flushes.clear()
