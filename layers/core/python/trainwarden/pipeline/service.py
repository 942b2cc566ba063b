"""The use cases: every Lambda, the command line and the tests call these and nothing deeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from trainwarden import policy
from trainwarden.errors import (
    BadInputError,
    ConflictError,
    KeyGrammarError,
    NotFoundError,
    RetryableError,
)
from trainwarden.model import Json
from trainwarden.pipeline import actions, closing, control, outcome
from trainwarden.pipeline.budget import Budget, Metered
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.inbox import Inbox
from trainwarden.pipeline.opening import OVER, Opening
from trainwarden.pipeline.passes import Call
from trainwarden.pipeline.values import Ingested, Settings, Swept
from trainwarden.store.ports import (
    CustomRules,
    JobRecord,
    JobStatus,
    Ledger,
    ObjectStore,
    TrainingJob,
    TrainingJobs,
)
from trainwarden.wire import keys as grammar
from trainwarden.wire.control import Control

T = TypeVar("T")
MAX_CONFLICTS = 10  # each is another writer's progress; then the notice goes back to the queue
_ENDING = frozenset({JobStatus.CLOSING, JobStatus.CLOSED})


class Pipeline:
    """Folds what training jobs saved into verdicts, exactly once.

    Args:
        objects: Where the jobs' objects lie.
        ledger: Where verdicts are kept.
        training: SageMaker, where this process may ask it; None elsewhere.
        settings: Patience and limits.
        now: Seconds since the epoch, UTC.
        custom: Where custom rules run; None where nobody runs them.
    """

    def __init__(
        self,
        objects: ObjectStore,
        ledger: Ledger,
        training: TrainingJobs | None,
        settings: Settings,
        now: Callable[[], float],
        custom: CustomRules | None = None,
    ) -> None:
        self._custom = custom
        self._objects = Metered(objects)
        self._inbox, self._ledger, self._training = Inbox(self._objects), ledger, training
        self._settings, self._now = settings, now
        self._slow: set[str] = set()  # jobs that used up their share of the last sweep

    def notice(self, key: str, *, until: float | None = None) -> Ingested:
        """Fold the job that an object's key belongs to; a key that is none of ours is only told.

        Raises:
            RetryableError: throttled, unreachable, or too many other writers: give it again.
        """
        try:
            found = grammar.parse(key)
        except KeyGrammarError as error:
            return Ingested(job="", reason=str(error))
        return self.ingest(found.job, keys=(key,), until=until)

    def ingest(
        self,
        job: str,
        *,
        keys: Iterable[str] = (),
        until: float | None = None,
        thorough: bool = False,
    ) -> Ingested:
        """Fold what a job saved since, in order, and commit it.

        Args:
            job: Job name.
            keys: Keys of the notices that led here: hints of what to look at.
            until: When to leave the rest to the next call, by the clock; the settings' budget
                ends it in any case.
            thorough: True to look for gaps, silence and lost notices, too.

        Raises:
            RetryableError: throttled, unreachable, or too many other writers: give it again.
        """
        hints = tuple(key for key in _parsed(keys) if key.job == job)
        end = self._now() + self._settings.budget_s
        end = end if until is None else min(end, until)
        limits = self._settings
        budget = Budget(limits.max_objects, limits.max_requests, end, self._now)
        self._objects.budget = budget
        total = Ingested(job)
        while True:
            call = Call(
                job=job,
                keys=hints,
                budget=budget,
                thorough=thorough,
                inbox=self._inbox,
                ledger=self._ledger,
                training=self._training,
                settings=self._settings,
                now=self._now,
                custom=self._custom,
            )
            try:
                for brought in call.run():
                    total = total.plus(brought)
            except ConflictError:
                total = total.plus(Ingested(job, conflicts=1))
                if total.conflicts > MAX_CONFLICTS:
                    raise
            else:
                return total

    def open_job(self, training: TrainingJob) -> Ingested:
        """Take SageMaker's description of a job that runs, and fold what waited for it.

        Raises:
            RetryableError: as ``ingest``.
        """
        if training.status in OVER:
            return self.close_job(training)

        def change(opening: Opening) -> None:
            # An event may be overtaken by that of the job's end.
            if opening.draft.record.status not in _ENDING:
                opening.describe(training)

        self._change(training.name, change)
        return self.ingest(training.name)

    def close_job(self, training: TrainingJob) -> Ingested:
        """Take SageMaker's word that a job has ended; it is closed once its last data is folded.

        Raises:
            RetryableError: as ``ingest``.
        """

        def change(opening: Opening) -> None:
            if opening.draft.record.status not in _ENDING:
                opening.describe(training)
                closing.begin(opening.draft, training.status, at=opening.draft.now)

        self._change(training.name, change)
        return self.ingest(training.name)

    def end(self, job: str, outcome: str) -> Ingested:
        """Close a job now, with whatever is there: nothing is waited for.

        Raises:
            NotFoundError: nobody has heard of the job.
            RetryableError: as ``ingest``.
        """
        if self._ledger.load(job) is None:
            raise NotFoundError(f"no job {job} in the ledger")

        def change(opening: Opening) -> None:
            if opening.draft.record.status is not JobStatus.CLOSED:
                at = opening.draft.now - self._settings.closing_grace_s
                closing.begin(opening.draft, outcome, at=at)

        self._change(job, change)
        total = self.ingest(job)
        while total.more:
            total = total.plus(self.ingest(job))
        return total

    def sweep(self, *, until: float | None = None) -> Swept:
        """Look at every open job: lost notices, gaps past their deadline, silence, late ends.

        A job that cannot be looked at is left to the next sweep; it does not hold up the others.
        """
        end = self._now() + self._settings.sweep_s
        end = end if until is None else min(end, until)
        names = self._in_turn(self._ledger.open_jobs())
        total, failed = Ingested(""), dict[str, str]()
        done = closed = 0
        for job in names:
            now = self._now()
            if now >= end:
                break
            share = max(self._settings.share_s, (end - now) / (len(names) - done))
            done += 1
            try:
                brought = self._shared(job, min(end, now + share))
            except (RetryableError, BadInputError) as error:
                failed[job] = str(error)
                continue
            total, closed = total.plus(brought), closed + brought.closed
        return Swept(
            jobs=done,
            folded=total.folded,
            findings=total.findings,
            rejected=total.rejected,
            lost=total.lost,
            crashed=total.crashed,
            conflicts=total.conflicts,
            closed=closed,
            failed=failed,
            dropped=total.dropped,
            more=done < len(names),
        )

    def _in_turn(self, jobs: Iterable[str]) -> list[str]:
        """Order jobs so that each is first now and then, and those that took long come last."""
        names = sorted(jobs)
        start = int(self._now() // 60) % len(names) if names else 0
        self._slow &= {*names}
        return sorted((*names[start:], *names[:start]), key=self._slow.__contains__)

    def _shared(self, job: str, until: float) -> Ingested:
        """Sweep one job; whatever comes of it, remember whether it used up its share."""
        self._slow.add(job)
        brought = self.ingest(job, until=until, thorough=True)
        if not brought.more:
            self._slow.discard(job)
        return brought

    def authorize_stop(self, job: str, rule: str) -> policy.Decision:
        """Decide afresh whether a job may be stopped for a rule.

        Raises:
            NotFoundError: nobody has heard of the job.
            RetryableError: throttled or unreachable.
        """
        return actions.authorize_stop(self._ledger, self._training, self._settings, job, rule)

    def ask_to_stop(self, job: str, reason: str) -> Control:
        """Ask the training loop of a job to end after its step.

        Raises:
            RetryableError: unreachable.
        """
        return control.ask_to_stop(self._objects, job, reason)

    def capture_more(self, job: str, rule: str) -> dict[str, Json]:
        """Ask a job's hook for detail because of a rule's verdict; see ``actions.capture_more``.

        Raises:
            NotFoundError: nobody has heard of the job.
            RetryableError: throttled, unreachable, or too many other writers: give it again.
        """

        def attempt() -> dict[str, Json]:
            return actions.capture_more(self._objects, self._ledger, job, rule, now=self._now())

        return _retried(attempt)

    def record_action(self, job: str, kind: str, rule: str, result: Mapping[str, Json]) -> bool:
        """Record what came of an action and tell it; False if it was recorded before.

        Raises:
            NotFoundError: nobody has heard of the job.
            RetryableError: throttled, unreachable, or too many other writers: give it again.
        """

        def attempt() -> bool:
            return actions.record(self._ledger, job, kind, rule, result, now=self._now())

        return _retried(attempt)

    def _change(self, job: str, change: Callable[[Opening], None]) -> None:
        """Commit a change of a job's record, on top of whatever others commit meanwhile."""
        self._objects.budget = None

        def attempt() -> bool:
            now = self._now()
            record = self._ledger.load(job) or JobRecord(job, opened_at=now, last_seen=now)
            draft = Draft(record, now)
            change(Opening(draft, self._inbox, self._settings, self._training))
            outcome.commit(draft, self._ledger, self._settings.stop_on)
            return draft.changed

        _retried(attempt)


def _retried(attempt: Callable[[], T]) -> T:
    for _ in range(MAX_CONFLICTS):
        try:
            return attempt()
        except ConflictError:  # noqa: PERF203 - a conflict is another writer's progress
            continue
    return attempt()


def _parsed(texts: Iterable[str]) -> Iterator[grammar.Key]:
    for text in texts:
        try:
            yield grammar.parse(text)
        except KeyGrammarError:  # noqa: PERF203 - one foreign key must not hide the others
            continue
