"""One watched run, whatever the framework: rows, drafts, the guard, and the way out.

An adapter opens a ``Draft`` for a saved step, fills it, and submits it. Every entry from the
training loop goes through ``Session.guarded``: an error there switches capture off, says so once,
and lets training go on, unless the run is strict.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from trainwarden.errors import TrainwardenError
from trainwarden.hook.budget import Budget
from trainwarden.hook.config import Place
from trainwarden.hook.destination import open_store
from trainwarden.hook.detail import Detail
from trainwarden.hook.draft import Draft
from trainwarden.hook.observing import observation
from trainwarden.hook.options import Options
from trainwarden.hook.plan import Plan
from trainwarden.hook.raw import RawStep, suspects
from trainwarden.hook.rows import Rows
from trainwarden.hook.saying import logger, say
from trainwarden.hook.shared_budget import SharedBudget
from trainwarden.hook.stopping import Stopping
from trainwarden.hook.team import Team
from trainwarden.hook.uploader import Limits, Uploader
from trainwarden.model import TRAIN, Collection, Json, Mode, TensorInfo
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import Control
from trainwarden.wire.manifest import Manifest

T = TypeVar("T")
_MAX_SAID = 500  # messages remembered, so that each is said once


class _Here:
    """This process. Asking the system each time would cost as much as a whole unsaved step."""

    pid = os.getpid()

    @classmethod
    def look(cls) -> None:
        """A child was forked."""
        cls.pid = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Here.look)


class Adapter(Protocol):
    """What follows the training loop for a session; it keeps the watched modules alive."""

    def detach(self) -> None:
        """Remove the hooks."""

    def settle(self) -> None:
        """Submit what is complete."""

    def finish(self) -> None:
        """Submit what is left."""


class Session:
    """Collects observations of one worker and uploads them in the background.

    Args:
        options: What is captured, checked.
        place: Job, destination, rank.
        framework: Name and version for the manifest.
        environment: For the manifest.
        store: Where to write; None to open what ``place`` names.
        limits: Upload limits; None for the defaults.
        team: Other processes that record parts of the same model.
    """

    def __init__(  # noqa: PLR0913 - collaborators, each named
        self,
        options: Options,
        place: Place,
        *,
        framework: str,
        environment: Mapping[str, Json],
        store: ObjectStore | None = None,
        limits: Limits | None = None,
        team: Team | None = None,
    ) -> None:
        self.options, self.place = options, place
        self.active = True
        self.stopping = Stopping(allowed=options.stop, alone=place.world_size <= 1)
        self._adapter: Callable[[], Adapter | None] = lambda: None
        self._lost: TrainwardenError | None = None  # why the upload gave up, until it is acted on
        self._told = False  # that it did
        self._rows = Rows(self.say, options.also)
        self.plan = Plan(options, self._rows)
        schedule = options.schedule
        self.budget = (
            Budget(options.max_overhead)
            if team is None
            else SharedBudget(options.max_overhead, schedule.number, schedule.interval)
        )
        self.detail = Detail(self.say)
        self._weighed = False  # what runs now is, as part of a saved step
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
            team=team,
            continues=place.sagemaker or options.schedule.start > 0,
            seal_key=place.seal_key,
            limits=limits or Limits(pending_bytes=options.max_pending_bytes),
            report=self.say,
            on_control=self._control,
            on_failure=self._upload_failed,
        )

    def connect(self, adapter: Adapter, leftovers: Callable[[], object]) -> None:
        """Work for ``adapter`` without keeping it alive.

        Args:
            adapter: Held weakly: a run whose modules nobody holds any more ends by itself.
            leftovers: Called then, to submit what is complete and to take out what is not on the
                modules; must not hold the adapter.
        """
        self._adapter = weakref.ref(adapter)
        weakref.finalize(adapter, self._orphaned, leftovers).atexit = False

    @property
    def stop_requested(self) -> bool:
        """True once somebody asks for the end of the run."""
        return self.stopping.reason is not None

    # ---- what the adapter builds ----------------------------------------------------------

    def now(self) -> float:
        """Seconds since the epoch, UTC; never goes backwards, whatever is done to the clock."""
        return self._wall + time.monotonic() - self._monotonic

    def row(self, info: TensorInfo) -> int:
        """Return the row of a tensor, a new one for a new name; -1 if the layout is full."""
        return self._rows.row(info)

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """The layout so far."""
        return self._rows.layout.tensors

    def due(self, step: int) -> bool:
        """Say whether a training step is saved; asked once for each, before it is made.

        The schedule wants it and it may cost that, or somebody asked for detail.
        """
        if self.detail.active and self.detail.wants(step):
            return True
        plan = self.plan
        return plan.saves(step) and (plan.demands(step) or self.budget.allows(step))

    def expects(self, step: int) -> bool:
        """Say whether a step is saved unless it costs too much."""
        return self.plan.saves(step) or self.detail.covers(step)

    def covers(self, step: int) -> bool:
        """Say whether a step may be saved if there is a reason to."""
        return self.plan.covers(step) or self.detail.covers(step)

    def draft(self, step: int, mode: Mode, mode_step: int, *, whole: bool = False) -> Draft:
        """Open the draft of a saved step.

        Args:
            step: Of the run.
            mode: Training or evaluation.
            mode_step: Within the mode.
            whole: Measure whole tensors whatever it costs.
        """
        draft = Draft(step, mode, mode_step, self.now())
        asked = self.detail.facts(step) if mode is TRAIN else {}
        if not whole and not asked:
            draft.resting = self.plan.resting(mode, step if mode is TRAIN else mode_step)
        if mode is TRAIN:
            schedule, raw = self.options.schedule, self._raw(step, suspect=bool(asked))
            whole = whole or bool(asked or raw) or schedule.demands(step)
            draft.exact = whole or (schedule.measures(step) and self.budget.ample)
            facts = self.budget.begin(step) | asked
            if not draft.exact:
                facts["sampled"] = 1.0
            if facts and Collection.CAPTURE in self.options.collections:
                draft.facts(Collection.CAPTURE, facts)
            if raw:
                draft.raw = RawStep(step, self._rows, raw, room=self.uploader.raw.room)
        return draft

    def _raw(self, step: int, *, suspect: bool) -> Callable[[TensorInfo], bool] | None:
        """Return which tensors of a saved step are kept as they are; None for none."""
        chosen = self.plan.raw(step)
        if not suspect or not self.detail.raw(step):
            return chosen
        named = suspects(self._rows, partial(self.detail.suspects, step))
        return named if chosen is None else lambda info: chosen(info) or named(info)

    def submit(self, draft: Draft) -> None:
        """Hand a draft over for upload."""
        draft.settle()
        if draft.raw is not None and self.uploader.keep(draft.raw):
            draft.scalar(Collection.CAPTURE, "raw", float(len(draft.raw.entries)))
        self.uploader.submit(observation(draft, self._rows, self.place.worker))
        if draft.mode is TRAIN:
            self.budget.end(draft.step)
        if self.options.strict and self.uploader.error is not None:
            raise self.uploader.error

    # ---- what may go wrong ----------------------------------------------------------------

    def say(self, message: str, *, kind: str = "") -> None:
        """Warn the user, once for each message, or for each kind of them."""
        known = kind or message
        if known not in self._said and len(self._said) < _MAX_SAID:
            self._said.add(known)
            say(message)

    def trouble(self, error: TrainwardenError) -> None:
        """Raise if strict, else warn once and go on."""
        if self.options.strict:
            raise error
        self.say(str(error))

    def guarded(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """Call ``function``; its errors never reach the training loop, unless strict."""
        if not self.active or self.pid != _Here.pid:
            self._rest()
            return None
        if self._weighed or not self.budget.running:
            return self._guard(function, *arguments)
        self._weighed = True
        self.budget.enter()
        try:
            return self._guard(function, *arguments)
        finally:
            self.budget.leave()
            self._weighed = False

    def _rest(self) -> None:
        """Take the hooks out if the upload gave up; a forked child leaves its copies alone."""
        if self._lost is not None and self.pid == _Here.pid:
            self._leave()

    def _guard(self, function: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return function(*arguments)
        except Exception as error:  # the outermost guard: see the module's docstring
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

    def _upload_failed(self, error: TrainwardenError) -> None:
        """Capture is of no use any more; in the background thread."""
        self.active, self._lost, self._told = False, error, True

    def withdraw(self) -> None:
        """Leave without a trace, as in a forked child: another process writes for the job."""
        self.detach()
        self.active, self.pid = False, -1

    def _leave(self) -> None:
        """Take the hooks out after the upload gave up; in the training thread."""
        error, self._lost = self._lost, None
        self.detach()
        if self.options.strict and error is not None:
            raise error

    def _control(self, control: Control) -> None:
        """Act on the cloud's advice; in the background thread."""
        if control.stop and not self.place.worker:  # the first process tells the others
            self.stopping.ask(control.reason)
        self.detail.ask(control.details)

    # ---- the way out ----------------------------------------------------------------------

    def detach(self) -> None:
        """Remove the adapter's hooks."""
        adapter = self._adapter()
        if adapter is not None:
            adapter.detach()

    @property
    def over(self) -> bool:
        """True if nothing is left to be done, not even at the end of the process."""
        return not self.active and not self.uploader.alive

    def _orphaned(self, leftovers: Callable[[], object]) -> None:
        """End without waiting: nobody holds the watched modules any more.

        Called by the garbage collector, in whatever thread it runs, perhaps the uploader's.
        """
        if self.pid != os.getpid():
            return
        with suppress(Exception):  # strict or not, there is nobody to raise to
            self._guard(leftovers)
        self.active = False
        self.uploader.end("finished")

    def flush(self, timeout_s: float) -> bool:
        """Submit what is complete and send it; True if it was stored in time."""
        if self.pid != os.getpid():
            return False
        adapter = self._adapter()
        if adapter is not None:
            self.guarded(adapter.settle)
        return self.uploader.flush(timeout_s)

    def close(self, reason: str, timeout_s: float | None = None) -> bool:
        """Remove the hooks, send what is left and the end object; True if all was stored."""
        if self.pid != os.getpid() or not self._closing.acquire(blocking=False):
            return False
        try:
            adapter = self._adapter()
            if adapter is not None:
                self.guarded(adapter.finish)
            self.active = False
            self.detach()
            wait = self.options.close_timeout_s if timeout_s is None else timeout_s
            ended = self.uploader.close(reason, wait)
        finally:
            self._closing.release()
        if not ended and (self.options.strict or not self._told):
            why = self.uploader.error or "the time was not enough"
            text = f"the last saved steps could not be uploaded within {wait:g} s: {why}"
            self.trouble(TrainwardenError(text))
        return ended
