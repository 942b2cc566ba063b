"""Every worker's steps objects from its watermark on: read, refused, counted, passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwarden.errors import BadInputError
from trainwarden.model import Layout, Observation
from trainwarden.pipeline.budget import Budget
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.inbox import Found, Inbox
from trainwarden.pipeline.sealing import not_sealed, required_key
from trainwarden.wire.codec import StepsObject
from trainwarden.wire.keys import EndKey, StepsKey, steps_prefix
from trainwarden.wire.manifest import Manifest

RESTARTS = "restarts"  # what the hook says was dropped when a worker was started anew
KEPT_REASONS = 64  # for which something was dropped; the record has to fit one item
UNKNOWN = "unknown"  # why a worker ended whose end object is not readable


@dataclass
class Stream:
    """One worker's steps objects from its watermark on.

    Attributes:
        worker: Rank.
        seq: Number of the object to fold next.
        index: Position in it.
        found: The object, once read; kept between commits of one call.
        idle: True if it was looked for in this pass and cannot be folded yet.
        unreadable: Why not, if it is there.
        hidden: True if what is there was left by an earlier run.
        forged: True if what is there lacks the run's seal.
    """

    worker: int
    seq: int = 0
    index: int = 0
    found: StepsObject | None = None
    idle: bool = False
    unreadable: str = ""
    hidden: bool = False
    forged: bool = False

    def head(self) -> Observation | None:
        """Return the observation to fold next, None if its object was not read or has no more."""
        observations = self.found.observations if self.found else ()
        return observations[self.index] if self.index < len(observations) else None

    def jump(self, seq: int) -> None:
        """Go on with object ``seq``."""
        self.seq, self.index, self.found = seq, 0, None
        self.idle, self.unreadable, self.hidden, self.forged = False, "", False, False


@dataclass
class Streams:
    """The streams of a job's workers; what is wrong with an object goes into the draft.

    Attributes:
        draft: Takes incidents and counters.
        inbox: Where objects are read.
        manifest: The accepted manifest; None if it cannot be read any more.
        budget: What the call may still do.
        by_worker: One a worker that the manifest names.
        fresh: True if the manifest was read in this pass.
    """

    draft: Draft
    inbox: Inbox
    manifest: Manifest | None
    budget: Budget
    by_worker: Mapping[int, Stream] = field(default_factory=dict)
    fresh: bool = False

    @property
    def drained(self) -> bool:
        """True if every worker said how far it wrote and all of it is folded."""
        return all(self.done(stream) and stream.idle for stream in self.by_worker.values())

    @property
    def may_go_on(self) -> bool:
        """False if the call should end before the next step."""
        if self.budget.late or self.draft.is_full():
            return False
        unread = any(s.found is None and not s.idle for s in self.by_worker.values())
        return not (unread and self.budget.spent)

    def done(self, stream: Stream) -> bool:
        """True if a worker has said that it writes nothing from here on."""
        last = self.draft.record.ended.get(stream.worker)
        return last is not None and stream.seq > last

    def look(self, stream: Stream) -> bool:
        """Read the object at the stream's position; False if the manifest must be read first."""
        while stream.found is None and not stream.idle and not self.draft.is_full():
            found = self._read(stream)
            if (found.run or found.unreadable) and not self.fresh:
                return False
            stream.unreadable = found.unreadable
            if found.steps is not None:
                stream.found = found.steps
                if stream.head() is None:  # overwritten by a shorter one
                    self._finish(stream)
            elif found.run:
                self.refuse(stream, _of_run(self._run, found.run))
            elif found.refused is not None:
                self.refuse(stream, found.refused)
            else:
                stream.idle = True
        return True

    def _read(self, stream: Stream) -> Found:
        key, seal = self.key(stream), required_key(self.draft)
        found = self.inbox.steps(key, self._run, self._layout, seal=seal)
        self.budget.used += not found.nothing
        # What an earlier run left is not there: this run may overwrite it any moment.
        stream.hidden = found.run in self.draft.progress.superseded
        # Nor is what somebody else put there: the run's own object takes its place.
        stream.forged = bool(found.forged)
        if stream.forged:
            self._tell_forged(stream, found.forged)
        return Found() if stream.hidden or stream.forged else found

    def _tell_forged(self, stream: Stream, digest: str) -> None:
        """Tell, once, of what somebody else put where the stream's next object belongs."""
        draft, key = self.draft, str(self.key(stream))
        earlier = steps_prefix(draft.record.job, stream.worker)
        # Only the last key of a worker is kept: the record has to fit one item.
        kept = {
            at: seen
            for at, seen in draft.progress.refused.items()
            if at == key or not at.startswith(earlier)
        }
        draft.note(refused=kept)
        draft.reject_once("UNSEALED", key, not_sealed("an object"), digest, stream.worker)

    @property
    def _layout(self) -> Layout | None:
        return self.manifest.layout if self.manifest else None

    @property
    def _run(self) -> str:
        return str(self.draft.record.manifest.get("run", ""))

    def key(self, stream: Stream) -> StepsKey:
        """Return the key of the object to fold next."""
        return StepsKey(self.draft.record.job, stream.worker, stream.seq)

    def refuse(self, stream: Stream, error: BadInputError) -> None:
        """Pass an object that nobody can fold: once, with its reason, in the same commit."""
        key, worker = str(self.key(stream)), stream.worker
        self.draft.reject("REJECTED", key, error, worker=worker, seq=stream.seq)
        self.draft.note(holes=tuple(sorted({*self.draft.progress.holes, worker})))
        stream.jump(stream.seq + 1)

    def after_gap(self, stream: Stream, *, any_will_do: bool) -> StepsKey | None:
        """Return the next object after a missing one, as ``Inbox.after_gap`` finds it."""
        return self.inbox.after_gap(
            self.key(stream),
            self._run,
            self._layout,
            hidden=self.draft.progress.superseded,
            any_will_do=any_will_do,
            seal=required_key(self.draft),
        )

    def pop(self, stream: Stream) -> None:
        """Pass one folded observation."""
        stream.index += 1
        if stream.head() is None:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        """Count a folded object and go on to the next."""
        draft, progress = self.draft, self.draft.progress
        lost = stream.found.dropped if stream.found else {}
        new = sorted(name for name in lost if name not in progress.dropped)
        names = sorted([*progress.dropped, *new][:KEPT_REASONS])
        dropped = {name: progress.dropped.get(name, 0) + lost.get(name, 0) for name in names}
        draft.note(objects=progress.objects + 1, dropped=dropped)
        if self.done(stream):
            self._came_back(stream, restarted=bool(lost.get(RESTARTS)))
        stream.jump(stream.seq + 1)

    def _came_back(self, stream: Stream, *, restarted: bool) -> None:
        """Believe the object that is there, not the end object that denies it."""
        record, reasons, worker = self.draft.record, self.draft.progress.reasons, stream.worker
        if not restarted and reasons.get(worker) != UNKNOWN:
            contradict(self.draft, worker, record.ended[worker], stream.seq)
        self.draft.change(ended={w: seq for w, seq in record.ended.items() if w != worker})
        self.draft.note(reasons={w: why for w, why in reasons.items() if w != worker})


def contradict(draft: Draft, worker: int, said: int, seq: int) -> None:
    """Record, once, that object ``seq`` is there although the end object said ``said``."""
    key = str(EndKey(draft.record.job, worker))
    error = BadInputError(
        f"last_seq {seq} or more", f"last_seq {said}", "write the end object last"
    )
    draft.reject_once("END", key, error, "contradicted", worker)


def _of_run(expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"an object of run {expected}", f"one of run {found}", "give each run its own job name"
    )
