"""The fold: every worker's objects, in order, merged step by step and judged.

What is folded next is a function of what lies at each worker's position and of nothing else, so
the order in which objects and notices arrive cannot matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from trainwarden.custom.asking import NOBODY, Asking
from trainwarden.errors import BadInputError
from trainwarden.model import Observation
from trainwarden.pipeline.budget import OverBudgetError
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.lookahead import Lookahead, Position
from trainwarden.pipeline.outcome import Judge, announce, withdraw_no_data
from trainwarden.pipeline.streams import Stream, Streams
from trainwarden.pipeline.values import Settings

CLOCK_JUMP_S = 30 * 86400.0  # a step's clock may not be further from the one before
_LATE = "the job went on without this worker when it was overdue; its later steps are folded again"


class Stop(Enum):
    """Why folding stopped: nothing more to fold, a commit or limit is due, or look again."""

    IDLE = "idle"
    DUE = "due"
    MANIFEST = "manifest"  # an object of a run or row that the manifest known does not have


@dataclass
class Folding:
    """Folds one job until nothing is left, a commit is due or the manifest must be read again.

    Attributes:
        draft: Takes what the fold brings.
        judge: The job's rules and configuration.
        streams: The workers' objects.
        settings: The pipeline's.
        thorough: True if it may look for gaps, which costs a listing.
        forced: True if the job's end and its grace are over: nothing is waited for.
        blocked: Set if there are steps that wait for another worker.
        asking: Asks for what custom rules say.
    """

    draft: Draft
    judge: Judge
    streams: Streams
    settings: Settings
    thorough: bool = False
    forced: bool = False
    blocked: bool = False
    asking: Asking = NOBODY

    def __post_init__(self) -> None:
        self.lookahead = Lookahead(self.asking, self._on_time)

    def run(self) -> Stop:
        """Fold what is there, and leave the new watermarks in the draft."""
        workers = self.streams.by_worker
        for stream in workers.values():
            stream.idle = False
        try:
            stop = self._run(workers)
        except OverBudgetError:  # between two changes: what was folded stands
            stop = Stop.DUE
        at = {worker: (s.seq, s.index) for worker, s in sorted(workers.items())}
        waiting = self.draft.progress.waiting
        self.draft.change(watermarks=at, gap_since=min(waiting.values(), default=0.0))
        return stop

    def _run(self, workers: Mapping[int, Stream]) -> Stop:
        while self.streams.may_go_on:
            if not all(self.streams.look(stream) for stream in workers.values()):
                return Stop.MANIFEST
            if self.draft.is_full():
                break
            heads = {w: head for w, s in workers.items() if (head := s.head()) is not None}
            if any(self._is_late(workers[w], head) for w, head in heads.items()):
                continue
            absent = [s for w, s in workers.items() if w not in heads and not self.streams.done(s)]
            held = [s for s in absent if s.worker not in self.draft.progress.waived]
            self.blocked = bool(heads and held)
            if heads and not held:
                self._advance(heads)
            elif not any(self._is_overdue(stream) for stream in (held if heads else absent)):
                return Stop.IDLE
        return Stop.DUE

    def _advance(self, heads: Mapping[int, Observation]) -> None:
        """Fold the earliest step there is, merged over the workers that have it."""
        draft, progress = self.draft, self.draft.progress
        position = Position(
            progress.steps, progress.time, frozenset(progress.holes), frozenset(progress.waived)
        )
        engine = self.judge.engine
        group, obs = self.lookahead.next(
            self.streams.by_worker, heads, position, engine, draft.record.rules
        )
        if progress.no_data:
            withdraw_no_data(draft, self.judge)
        if self.settings.beside is not None:
            self.settings.beside(obs)
        fold = engine.advance(draft.record.rules, obs)
        announce(draft, self.judge, fold, salt=str(progress.steps))
        draft.note(
            step=obs.step,
            time=obs.time,
            steps=progress.steps + 1,
            holes=tuple(worker for worker in progress.holes if worker not in group),
            waiting={w: at for w, at in progress.waiting.items() if w not in heads},
        )
        draft.change(last_seen=draft.now)
        for worker in group:
            self.streams.pop(self.streams.by_worker[worker])

    def _on_time(self, obs: Observation, position: Position) -> Observation:
        """Mend a clock that ran backwards or jumped: the same way whenever it is folded."""
        manifest = self.streams.manifest
        created = manifest.created if manifest else 0.0
        before = position.time if position.steps else (created or obs.time)
        ahead = obs.time - before
        lower = 0.0 if position.steps else -CLOCK_JUMP_S
        return obs if lower <= ahead <= CLOCK_JUMP_S else replace(obs, time=before)

    def _is_late(self, stream: Stream, head: Observation) -> bool:
        """See whether a worker that nobody waited for is back; drop what it brings too late."""
        progress, worker = self.draft.progress, stream.worker
        if worker not in progress.waived:
            return False
        if head.step > progress.step:
            self.draft.note(waived=tuple(w for w in progress.waived if w != worker))
            return False
        error = BadInputError(f"steps after {progress.step}", f"step {head.step}", _LATE)
        key = str(self.streams.key(stream))
        self.draft.reject("LATE", key, error, worker=worker, seq=stream.seq)
        seq = stream.seq
        while stream.seq == seq and (late := stream.head()) and late.step <= progress.step:
            self.streams.pop(stream)
        return True

    def _is_overdue(self, stream: Stream) -> bool:
        """Wait for what is missing, or give it up at the deadline; True if folding can go on."""
        worker, waiting = stream.worker, self.draft.progress.waiting
        since = waiting.get(worker)
        deadline = self.settings.gap_deadline_s
        if self.forced or (since is not None and self.draft.now >= since + deadline):
            return self._give_up(stream)
        if since is None and self.thorough and self._is_missing(stream):
            self.draft.note(waiting={**waiting, worker: self.draft.now})
        return False

    def _is_missing(self, stream: Stream) -> bool:
        return bool(
            self.blocked
            or stream.unreadable
            or stream.worker in self.draft.record.ended
            or self.streams.after_gap(stream, any_will_do=False)
        )

    def _give_up(self, stream: Stream) -> bool:
        """Pass what never came; True if folding can go on."""
        worker, progress = stream.worker, self.draft.progress
        if stream.unreadable:  # what follows is as overdue: it stays in ``waiting``
            error = BadInputError("rows that the manifest describes", stream.unreadable)
            self.streams.refuse(stream, error)
            return True
        later = self.streams.after_gap(stream, any_will_do=self.forced)
        self.draft.note(waiting={w: at for w, at in progress.waiting.items() if w != worker})
        if later is not None and stream.hidden:
            stream.jump(later.seq)  # the new run went on with the numbers of the earlier one
            return True
        if later is not None:
            self._lose(stream, later.seq - 1, f"object {later.seq} came")
            return True
        last = self.draft.record.ended.get(worker, -1)
        if last >= stream.seq:
            self._lose(stream, last, f"the end object says last_seq {last}")
            return True
        if self.blocked and worker not in progress.waived:
            self.draft.note(waived=tuple(sorted({*progress.waived, worker})))
            return True
        return False

    def _lose(self, stream: Stream, last: int, why: str) -> None:
        until = "the job's end" if self.forced else f"{self.settings.gap_deadline_s:g} s later"
        reason = f"{why}, but not what is before it until {until}"
        self.draft.lose(stream.worker, stream.seq, last, reason)
        stream.jump(last + 1)
