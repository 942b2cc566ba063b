"""Background upload: bounded memory, retries, gap-free numbers; training never waits for it.

The training thread only appends to ``Waiting`` and puts a token into a ``SimpleQueue``, which is
safe in a signal handler too. Everything else happens in one daemon thread.

An object gets its number just before the first PUT and is put again, byte for byte, until it is
stored; so numbers have no gaps whatever fails. What does not fit into memory meanwhile is dropped,
oldest first, and counted in the next object.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from trainwarden.errors import (
    BadInputError,
    MalformedObjectError,
    RetryableError,
    TrainwardenError,
)
from trainwarden.hook.raw import RawStep, RawWaiting
from trainwarden.hook.sender import Sender, Sending
from trainwarden.hook.team import NotYetError, Team, sender
from trainwarden.hook.waiting import Waiting
from trainwarden.model import Observation
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import Control
from trainwarden.wire.manifest import Manifest

HICCUPS = 3  # failures in a row before they are said
WAITS = 8  # the same, of a process that waits for another
MAX_CRASHES = 8  # errors that nobody thought of, in a row, before the upload is given up


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


class Uploader:
    """Uploads one worker's observations, then its end object.

    Args:
        open_store: Opens the destination; called in the background, again after an error.
        manifest: Without its layout, which comes with the observations.
        worker: Rank of this process; rank 0 writes the manifest.
        team: Other processes that write for the run, if there are any.
        continues: What was recorded under this name before is continued; else the name is changed.
        seal_key: What objects are sealed with; empty for no seals.
        limits: When is sent, how much may wait.
        report: Told each kind of trouble once, in one sentence, and that it is over.
        on_control: Called in the background with a control document that changed.
        on_failure: Called in the background when it gave up for good.
    """

    def __init__(  # noqa: PLR0913 - collaborators, each named
        self,
        open_store: Callable[[], ObjectStore],
        manifest: Manifest,
        *,
        worker: int = 0,
        team: Team | None = None,
        continues: bool = True,
        seal_key: bytes = b"",
        limits: Limits | None = None,
        report: Callable[[str], None] = lambda _: None,
        on_control: Callable[[Control], None] | None = None,
        on_failure: Callable[[TrainwardenError], None] = lambda _: None,
    ) -> None:
        self.counters: dict[str, int] = {}  # for the end object: since the start
        self.error: TrainwardenError | None = None  # the trouble of the moment
        self.stored_all = False
        self._open_store, self._manifest, self._worker = open_store, manifest, worker
        self._team = team
        self._continues, self._seal_key = continues, seal_key
        self._limits, self._report, self._on_control = limits or Limits(), report, on_control
        self._on_failure = on_failure
        self._waiting = Waiting(self._limits.pending_bytes)
        self.raw = RawWaiting(self._limits.pending_bytes)
        self._tokens: queue.SimpleQueue[threading.Event | None] = queue.SimpleQueue()
        self._reason, self._over, self._hurried = "", False, False
        self._sender: Sender | None = None
        self._sending: Sending | None = None
        self._flushes: list[threading.Event] = []
        self._failures, self._crashes, self._not_before = 0, 0, 0.0
        self._flush_s, self._control_at = self._limits.first_flush_s, 0.0
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="trainwarden", daemon=True)
        self._thread.start()

    # ---- called by the training thread, also from signal handlers ----

    def submit(self, observation: Observation) -> None:
        """Hand over an observation; drops the oldest waiting ones if too much waits."""
        if self._over:
            return
        self._waiting.push(observation)
        # Waking the thread makes both wait for each other: only when it has something to do.
        if len(self._waiting) == 1 or self._full():
            self._tokens.put(None)

    def keep(self, raw: RawStep) -> bool:
        """Hand over tensors that are saved as they are; False if there are none."""
        if raw.left_out:
            self.count("raw_tensors", raw.left_out)
        if self._over or not raw.entries:
            return False
        self.raw.push(raw)
        self._tokens.put(None)
        return True

    def count(self, reason: str, number: int = 1) -> None:
        """Count something that could not be saved; told in the next object."""
        self._waiting.count(reason, number)

    def flush(self, timeout_s: float) -> bool:
        """Send what waits now; True if all of it was stored within ``timeout_s``."""
        if not self.alive:
            return False
        done = threading.Event()
        self._tokens.put(done)
        return done.wait(timeout_s) and self.error is None

    def close(self, reason: str, timeout_s: float) -> bool:
        """Send what waits and the end object; True if all of it was stored within ``timeout_s``."""
        self.end(reason)
        if self.alive and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return self.stored_all

    def end(self, reason: str) -> None:
        """Send what waits and the end object, without waiting for it."""
        self._reason = self._reason or reason
        self._tokens.put(None)

    @property
    def job(self) -> str:
        """Name under which the job is recorded; may change before the first object is."""
        return self._sender.job if self._sender else self._manifest.job

    @property
    def alive(self) -> bool:
        """False in a forked child, and after the end or a crash of the thread."""
        return self._pid == os.getpid() and self._thread.is_alive()

    # ---- the background thread ----

    def _run(self) -> None:
        try:
            while not self._over:
                self._turn()
        finally:
            self._over = True
            self._waiting.clear()
            self._release(force=True)

    def _turn(self) -> None:
        try:
            self._wait()
            self._work()
        except MalformedObjectError as error:  # of the manifest or the end: the same next time
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 - the thread's outermost guard
            self._crashed(error)

    def _crashed(self, error: Exception) -> None:
        """Try again after an error nobody thought of, but not for ever."""
        self.counters["errors"] = self.counters.get("errors", 0) + 1
        self._crashes += 1
        if self._crashes >= MAX_CRASHES or (self._reason and self._hurried):
            self._give_up(error)
            return
        if self.error is None:
            self.error = TrainwardenError(f"upload failed: {error!r}")
            self._report(f"an upload failed: {_told(error)}; training goes on, it is tried again")
        self._pause(self._crashes)

    def _give_up(self, error: Exception) -> None:
        self._over = True
        why = f"nothing of this run can be uploaded any more: {_told(error)}"
        self.error = TrainwardenError(why)
        self._report(f"{why}; training goes on unwatched")
        self._on_failure(self.error)

    def _wait(self) -> None:
        """Sleep until there is something to do."""
        now = time.monotonic()
        if self._reason and not self._hurried:  # the end does not wait for the next try
            self._hurried, self._not_before = True, 0.0
        until = now + self._limits.control_s
        if self._sending or self.raw or self._due(now):
            until = max(self._not_before, now)
        elif self._waiting:
            until = min(until, self._waiting.since + self._flush_s)
        with suppress(queue.Empty):
            token = self._tokens.get(timeout=max(until - now, 0.0))
            while True:
                if token is not None:
                    self._flushes.append(token)
                token = self._tokens.get_nowait()

    def _due(self, now: float) -> bool:
        if self._reason or (self._flushes and self._waiting):
            return True
        if not self._waiting:
            return False
        return self._full() or now - self._waiting.since >= self._flush_s

    def _full(self) -> bool:
        return (
            len(self._waiting) >= self._limits.flush_steps
            or self._waiting.size >= self._limits.flush_bytes
        )

    def _work(self) -> None:
        if time.monotonic() < self._not_before:
            return
        try:
            while self._sending or self._due(time.monotonic()):
                if not self._send():
                    break
                self._hear()  # a loop may fill what waits as fast as it is sent
            self._send_raw()
            self._recovered()
            self._release()
            if self._reason and not (self._waiting or self._sending or self.raw):
                self._end()
            self._hear()
        except MalformedObjectError:
            raise
        except (RetryableError, BadInputError) as error:
            self._failed(error)

    def _opened(self) -> Sender:
        if self._sender is None:
            opened = sender(
                self._open_store(),
                self._manifest,
                self._worker,
                seal_key=self._seal_key,
                team=self._team,
            )
            asked = opened.job
            found = opened.resume(continues=self._continues)
            if found and opened.job == asked:
                self.count("restarts")
            elif found:
                self._report(f"{asked} was recorded before; this run is recorded as {opened.job}")
            self._sender = opened
        return self._sender

    def _send(self) -> bool:
        """Put one object; False if nothing waits."""
        opened = self._opened()
        self._sending = self._sending or self._next_object(opened)
        if self._sending is None:
            return False
        opened.send(self._sending)
        self._sending = None
        self._flush_s = min(self._flush_s * 2, self._limits.flush_s)
        return True

    def _next_object(self, opened: Sender) -> Sending | None:
        """Take what waits, as much as one object holds, and give it the next number."""
        limits = self._limits
        taken = self._waiting.take(most=limits.flush_steps, size=limits.flush_bytes)
        while taken:
            dropped = self._waiting.news()
            try:
                sending = opened.prepare(tuple(item.observation for item in taken), dropped)
            except RetryableError:  # not yet
                self._recount(dropped)
                self._waiting.give_back(taken)
                raise
            except (MalformedObjectError, ValueError, OverflowError) as error:
                self._recount(dropped)
                if len(taken) == 1:
                    self.count("unwritable")
                    self._report(f"a saved step could not be written: {error}")
                # Halves until the one that no object can hold is alone.
                half = len(taken) // 2
                if half:
                    self._waiting.give_back(taken[half:])
                taken = taken[:half]
            else:
                self._total(dropped)
                return sending
        return None

    def _send_raw(self) -> None:
        """Put tensors that wait; what is refused is given up, and statistics go on."""
        while (raw := self.raw.first) is not None:
            try:
                self._opened().send_raw(raw)
            except BadInputError as error:
                self.count("raw_tensors", len(raw.entries))
                self._report(f"tensors that were asked for could not be saved: {error}")
            self.raw.done()

    def _recount(self, dropped: Mapping[str, int]) -> None:
        for reason, number in dropped.items():
            self.count(reason, number)

    def _total(self, dropped: Mapping[str, int]) -> None:
        for reason, number in dropped.items():
            self.counters[reason] = self.counters.get(reason, 0) + number

    def _end(self) -> None:
        opened = self._opened()
        self._total(self._waiting.news())
        opened.end(self._reason, self.counters)
        self.stored_all = self._over = True

    def _hear(self) -> None:
        """Look at the control document if it is time."""
        now = time.monotonic()
        if self._reason or now < self._control_at:
            return
        self._control_at = now + self._limits.control_s
        if self._on_control is None or self._sender is None:
            return
        with suppress(RetryableError):  # advice can wait
            control = self._sender.advice()
            if control is not None:
                self._on_control(control)

    def _failed(self, error: RetryableError | BadInputError) -> None:
        self._failures += 1
        refused = isinstance(error, BadInputError)
        # What is refused may be allowed later (a policy, new credentials), but seldom in seconds.
        self._pause(self._failures, 4 if refused else 1)
        self.counters["retries"] = self.counters.get("retries", 0) + 1
        if self._reason and self._hurried and refused:
            self._over = True  # refused at the very end: nothing will change while we wait
        patience = WAITS if isinstance(error, NotYetError) else HICCUPS
        if self.error is None and (refused or self._failures >= patience):
            self.error = error
            self._report(
                f"nothing can be uploaded: {error}; training goes on, uploading is tried again"
            )

    def _pause(self, failures: int, factor: int = 1) -> None:
        pause = self._limits.retry_s * 2 ** min(failures - 1, 20) * factor
        self._not_before = time.monotonic() + min(pause, self._limits.max_retry_s)

    def _recovered(self) -> None:
        if self.error is not None:
            self._report("the upload works again")
        self.error, self._failures, self._crashes, self._not_before = None, 0, 0, 0.0

    def _release(self, *, force: bool = False) -> None:
        """Let those go on who wait in ``flush``."""
        if force or not (self._waiting or self._sending or self.raw):
            for done in self._flushes:
                done.set()
            self._flushes.clear()


def _told(error: Exception) -> str:
    """Return an error for a person; those of our own have their sentence already."""
    return str(error) if isinstance(error, TrainwardenError) else repr(error)[:300]
