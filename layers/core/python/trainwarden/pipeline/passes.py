"""One call for one job: pass after pass of reading, folding and committing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trainwarden.custom.asking import Asking
from trainwarden.pipeline import closing, outcome
from trainwarden.pipeline.budget import Budget, OverBudgetError
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.folding import Folding, Stop
from trainwarden.pipeline.inbox import Inbox
from trainwarden.pipeline.opening import Opening
from trainwarden.pipeline.progress import Progress
from trainwarden.pipeline.streams import RESTARTS, Stream, Streams
from trainwarden.pipeline.values import Ingested, Settings
from trainwarden.store.ports import CustomRules, JobRecord, JobStatus, Ledger, TrainingJobs
from trainwarden.wire.keys import EndKey, Key, ManifestKey
from trainwarden.wire.manifest import Manifest

LIVELY_S = 30.0  # a job folded less than this ago has an evaluator at work: no need to sweep it


@dataclass
class Call:
    """One call for one job, from a record just read; a conflict needs a new one.

    Attributes:
        job: Job name.
        keys: What the notices named.
        budget: What the call may do.
        thorough: True to look for gaps, silence and lost notices, too.
        inbox: Where objects are read.
        ledger: Where verdicts are kept.
        training: SageMaker, where this process may ask it.
        settings: The pipeline's.
        now: The clock.
        custom: Where custom rules run; None where nobody runs them.
    """

    job: str
    keys: tuple[Key, ...]
    budget: Budget
    thorough: bool
    inbox: Inbox
    ledger: Ledger
    training: TrainingJobs | None
    settings: Settings
    now: Callable[[], float]
    custom: CustomRules | None = None
    _streams: dict[int, Stream] = field(default_factory=dict)
    _fresh: bool = False

    def run(self) -> Iterator[Ingested]:
        """Fold and commit until nothing is new; yield what each commit brought.

        Raises:
            ConflictError: another writer committed first; what was yielded before stands.
            RetryableError: throttled or unreachable; the same.
        """
        record = self.ledger.load(self.job)
        if record is None:
            record = JobRecord(self.job, opened_at=self.now(), last_seen=self.now())
        if self.thorough and self._is_lively(record):
            return
        self._fresh = self.thorough or any(isinstance(key, ManifestKey) for key in self.keys)
        ends = self.thorough or not self.keys
        ends = ends or any(isinstance(key, EndKey) for key in self.keys)
        while True:
            draft = Draft(record, self.now())
            before = draft.progress
            try:
                stop = self._pass(draft, ends=ends)
            except OverBudgetError:  # between two changes: what was found until then stands
                stop = Stop.DUE
            record = outcome.commit(draft, self.ledger, self.settings.stop_on)
            closed = record.status is JobStatus.CLOSED
            more = self.budget.spent and not closed and stop is not Stop.IDLE
            yield _brought(draft, before, closed=closed and draft.changed, more=more)
            # Once more after each commit: an object may have come just after it was looked for,
            # and the call for its notice may have lost against this one.
            if more or closed or not (draft.changed or stop is Stop.MANIFEST):
                return
            self.keys, ends = (), False

    def _is_lively(self, record: JobRecord) -> bool:
        return record.status is JobStatus.OPEN and 0 <= self.now() - record.last_seen < LIVELY_S

    def _pass(self, draft: Draft, *, ends: bool) -> Stop:
        """Do whatever can be done before the next commit."""
        asking = Asking(self.custom, lambda: self.now() >= self.budget.until)
        opening = Opening(draft, self.inbox, self.settings, self.training, asking)
        late = draft.record.status is JobStatus.CLOSED
        if late and not self.keys:
            return Stop.IDLE
        attempt, fresh = draft.progress.attempt, self._fresh or late
        manifest = opening.manifest(fresh=fresh)
        if opening.asked(manifest):
            manifest = opening.manifest(fresh=True)  # now its seal can be checked
        if draft.progress.attempt != attempt:
            self._streams.clear()
        elif late and not opening.goes_on(manifest, self.keys):
            closing.note_late(draft, self.inbox, manifest, self.keys)
            return Stop.IDLE
        if not opening.open(manifest):
            draft.touch()  # a job that is heard of must be swept
            closing.settle(draft, opening, self.settings, None, thorough=self.thorough)
            return Stop.IDLE
        if manifest is not None and ends:
            closing.read_ends(draft, self.inbox, manifest)
        if manifest is not None and self.keys:
            closing.note_strangers(draft, manifest, self.keys)
        folding = self._folding(draft, opening, manifest, fresh=fresh)
        stop = folding.run()
        if stop is Stop.IDLE:
            closing.settle(draft, opening, self.settings, folding, thorough=self.thorough)
        self._fresh = stop is Stop.MANIFEST
        return stop

    def _folding(
        self, draft: Draft, opening: Opening, manifest: Manifest | None, *, fresh: bool
    ) -> Folding:
        """Set up the fold at the watermarks, with the objects that this call has read already."""
        for worker in draft.record.manifest["workers"]:
            at = draft.record.watermarks.get(worker, (0, 0))
            known = self._streams.get(worker)
            if known is None or (known.seq, known.index) != at:
                self._streams[worker] = Stream(worker, *at)
        streams = Streams(draft, self.inbox, manifest, self.budget, self._streams, fresh)
        return Folding(
            draft=draft,
            judge=opening.judge(),
            streams=streams,
            settings=self.settings,
            thorough=self.thorough,
            forced=closing.is_forced(draft, self.settings),
            asking=opening.asking,
        )


def _brought(draft: Draft, before: Progress, *, closed: bool, more: bool) -> Ingested:
    after = draft.progress
    if after.attempt != before.attempt:
        before = Progress()
    dropped = {name: n - before.dropped.get(name, 0) for name, n in after.dropped.items()}
    dropped.pop(RESTARTS, None)  # kept with the job, but nothing was dropped
    return Ingested(
        draft.record.job,
        folded=after.steps - before.steps,
        findings=draft.findings,
        rejected=draft.rejected,
        lost=draft.lost,
        crashed=draft.crashed,
        dropped=dropped,
        closed=closed,
        more=more,
    )
