"""One watched run, whatever the framework: rows, drafts, the guard, and the way out.

An adapter opens a ``Draft`` for a saved step, fills it, and submits it. Every entry from the
training loop goes through ``Session.guarded``: an error there switches capture off, says so once,
and lets training go on, unless the run is strict.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from trainwarden.errors import TrainwardenError
from trainwarden.hook.config import Place
from trainwarden.hook.destination import open_store
from trainwarden.hook.options import Options
from trainwarden.hook.uploader import Limits, Uploader
from trainwarden.model import (
    Channels,
    FloatArray,
    IntArray,
    Json,
    Layout,
    Mode,
    Observation,
    TensorInfo,
)
from trainwarden.stats.catalog import WIDTH
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import Control
from trainwarden.wire.manifest import MAX_TENSORS, Manifest

logger = logging.getLogger("trainwarden")
T = TypeVar("T")


def say(message: str) -> None:
    """Warn the user. Not through ``warnings``: with ``-W error`` those end a training."""
    logger.warning("trainwarden: %s", message)


@dataclass
class Draft:
    """An observation in the making; the adapter fills it while the step runs."""

    step: int
    mode: Mode
    mode_step: int
    time: float
    scalars: dict[str, dict[str, float]] = field(default_factory=dict)
    channels: dict[str, Channels] = field(default_factory=dict)
    labels: dict[str, dict[int, int]] = field(default_factory=dict)
    tables: list[tuple[IntArray, FloatArray]] = field(default_factory=list)

    def scalar(self, collection: str, name: str, value: float) -> None:
        """Set a scalar; the last value of a step wins."""
        self.scalars.setdefault(str(collection), {})[name] = value

    def rows(self, rows: IntArray, table: FloatArray) -> None:
        """Set rows (R,) of the layout to ``table`` (R, 32)."""
        self.tables.append((rows, table))

    @property
    def empty(self) -> bool:
        """True if there is nothing to save."""
        return not (self.scalars or self.tables or self.channels or self.labels)


class Session:
    """Collects observations of one worker and uploads them in the background.

    Args:
        options: What is captured, checked.
        place: Job, destination, rank.
        framework: Name and version for the manifest.
        environment: For the manifest.
        store: Where to write; None to open what ``place`` names.
        limits: Upload limits; None for the defaults.
    """

    def __init__(
        self,
        options: Options,
        place: Place,
        *,
        framework: str,
        environment: Mapping[str, Json],
        store: ObjectStore | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.options, self.place = options, place
        self.active = True
        self.stop_requested = False
        self.on_stop: Callable[[str], None] | None = None
        self.detach: Callable[[], None] = lambda: None  # the adapter's way to remove its hooks
        self.prepare: Callable[[], None] = lambda: None  # the adapter submits what is complete
        self.finish: Callable[[], None] = lambda: None  # the adapter submits what is left
        self._layout, self._rows = Layout(), dict[str, int]()
        self._tensors: list[TensorInfo] = []
        self._said: set[str] = set()
        self._wall, self._monotonic = time.time(), time.monotonic()
        self._closing = threading.Lock()
        self.pid = os.getpid()
        manifest = Manifest(
            job=place.job,
            run=secrets.token_hex(16),
            identity=place.identity,
            framework=framework,
            world_size=max(place.world_size, 1),
            workers=(place.worker,),
            rules=options.rules,
            capture=options.to_json(),
            environment=environment,
            sagemaker=place.sagemaker,
            created=self._wall,
        )
        self.uploader = Uploader(
            (lambda: store) if store is not None else (lambda: open_store(place)),
            manifest,
            worker=place.worker,
            continues=place.sagemaker or options.schedule.start > 0,
            seal_key=place.seal_key,
            limits=limits or Limits(pending_bytes=options.max_pending_bytes),
            report=self.say,
            on_control=self._control,
        )

    # ---- what the adapter builds ----------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch, UTC; never goes backwards, whatever is done to the clock."""
        return self._wall + time.monotonic() - self._monotonic

    def row(self, info: TensorInfo) -> int:
        """Return the row of a tensor, a new one for a new name; -1 if the layout is full."""
        row = self._rows.get(info.name)
        if row is None:
            if len(self._tensors) >= MAX_TENSORS:
                self.say(f"only the first {MAX_TENSORS} tensors are captured")
                return -1
            row = self._rows[info.name] = len(self._tensors)
            self._tensors.append(info)
        return row

    def draft(self, step: int, mode: Mode, mode_step: int) -> Draft:
        """Open the draft of a saved step."""
        return Draft(step, mode, mode_step, self.now())

    def submit(self, draft: Draft) -> None:
        """Hand a draft over for upload."""
        if len(self._layout.tensors) != len(self._tensors):
            self._layout = Layout(tuple(self._tensors))
        stats = np.full((len(self._tensors) if draft.tables else 0, WIDTH), np.nan)
        for rows, table in draft.tables:
            kept = rows >= 0
            stats[rows[kept]] = table[kept]
        self.uploader.submit(
            Observation(
                step=draft.step,
                mode=draft.mode,
                mode_step=draft.mode_step,
                time=draft.time,
                layout=self._layout,
                stats=stats,
                scalars=draft.scalars,
                channels=draft.channels,
                labels=draft.labels,
                workers=(self.place.worker,),
            )
        )
        if self.options.strict and self.uploader.error is not None:
            raise self.uploader.error

    # ---- what may go wrong ----------------------------------------------------------------

    def say(self, message: str) -> None:
        """Warn the user, once for each message."""
        if message not in self._said:
            self._said.add(message)
            say(message)

    def trouble(self, error: TrainwardenError) -> None:
        """Raise if strict, else warn once and go on."""
        if self.options.strict:
            raise error
        self.say(str(error))

    def guarded(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """Call ``function``; its errors never reach the training loop, unless strict."""
        if not self.active or self.pid != os.getpid():
            return None
        return self._guard(function, *arguments)

    def _guard(self, function: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return function(*arguments)
        except Exception as error:
            self._switch_off(error)
            if self.options.strict:
                raise
            return None

    def _switch_off(self, error: Exception) -> None:
        self.active = False
        self.uploader.count("errors")
        logger.debug("trainwarden: the error that switched capture off", exc_info=error)
        self.say(
            f"capture is switched off after an error in it ({type(error).__name__}: {error}); "
            "training goes on unwatched"
        )
        self.detach()

    def _control(self, control: Control) -> None:
        """Act on the cloud's advice; in the background thread."""
        if control.stop and not self.stop_requested:
            self.stop_requested = True
            self.say(f"the loop is asked to end after a checkpoint: {control.reason}")
            if self.on_stop is not None:
                self._guard(self.on_stop, control.reason)

    # ---- the way out ----------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Submit what is complete and send it; True if it was stored in time."""
        if self.pid != os.getpid():
            return False
        self.guarded(self.prepare)
        return self.uploader.flush(timeout_s)

    def close(self, reason: str, timeout_s: float | None = None) -> bool:
        """Remove the hooks, send what is left and the end object; True if all was stored."""
        if self.pid != os.getpid() or not self._closing.acquire(blocking=False):
            return False
        try:
            self.guarded(self.finish)
            self.active = False
            self.detach()
            wait = self.options.close_timeout_s if timeout_s is None else timeout_s
            ended = self.uploader.close(reason, wait)
        finally:
            self._closing.release()
        if not ended:
            why = self.uploader.error or "the time was not enough"
            text = f"the last saved steps could not be uploaded within {wait:g} s: {why}"
            self.trouble(TrainwardenError(text))
        return ended
