"""The end of a job: end objects, grace, silence, and what comes too late."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden.errors import BadInputError
from trainwarden.pipeline import outcome
from trainwarden.pipeline.draft import Draft
from trainwarden.pipeline.folding import Folding
from trainwarden.pipeline.inbox import Inbox, Refused
from trainwarden.pipeline.opening import Opening
from trainwarden.pipeline.sealing import required_key
from trainwarden.pipeline.streams import UNKNOWN, contradict
from trainwarden.pipeline.values import Settings
from trainwarden.store.ports import JobStatus
from trainwarden.wire.keys import EndKey, Key, StepsKey
from trainwarden.wire.manifest import End, Manifest

ABANDONED = "abandoned"
MAX_STRANGERS = 32
_WORST_FIRST = ("failed", "stopped", UNKNOWN, "finished")
_LATE = "write the end object last; raise the closing grace if the upload is slow"


def read_ends(draft: Draft, inbox: Inbox, manifest: Manifest) -> None:
    """Note which workers have ended, and how far each says it wrote."""
    record = draft.record
    for worker in manifest.workers:
        if worker in record.ended:
            continue
        found = inbox.end(record.job, worker, seal=required_key(draft))
        if isinstance(found, End) and found.run == manifest.run:
            _believe(draft, found)
        elif isinstance(found, End) and found.run not in draft.progress.superseded:
            error = BadInputError(f"the end object of run {manifest.run}", f"of run {found.run}")
            _refuse(draft, worker, error, found.run)
        elif isinstance(found, Refused):
            _refuse(draft, worker, found.error, found.digest)
            if found.forged:
                continue  # the worker's own will take its place
            _ended(draft, worker, _last_there(draft, inbox, worker), UNKNOWN)


def _believe(draft: Draft, end: End) -> None:
    folded = draft.record.watermarks.get(end.worker, (0, 0))[0] - 1
    if end.last_seq < folded:
        if end.time < draft.progress.time:
            return  # an earlier start's; the worker has been started anew since
        contradict(draft, end.worker, end.last_seq, folded)
    _ended(draft, end.worker, end.last_seq, end.reason)


def _refuse(draft: Draft, worker: int, error: BadInputError, digest: str) -> None:
    draft.reject_once("END", str(EndKey(draft.record.job, worker)), error, digest, worker)


def _ended(draft: Draft, worker: int, last_seq: int, reason: str) -> None:
    draft.change(ended={**draft.record.ended, worker: last_seq})
    draft.note(reasons={**draft.progress.reasons, worker: reason})


def _last_there(draft: Draft, inbox: Inbox, worker: int) -> int:
    """Return the number of the last object there is: the worker ended, but not how far it got."""
    seq = draft.record.watermarks.get(worker, (0, 0))[0]
    there = inbox.later(StepsKey(draft.record.job, worker, seq), itself=True)
    return max((key.seq for key in there), default=seq - 1)


def settle(
    draft: Draft, opening: Opening, settings: Settings, folding: Folding | None, *, thorough: bool
) -> None:
    """Close the job if it is over and everything is folded; else see whether it is too silent.

    Args:
        draft: With nothing left to fold.
        opening: The job's.
        settings: The pipeline's.
        folding: What was just folded; None if the job could not be opened.
        thorough: True if time may be judged.
    """
    record = draft.record
    drained = folding is not None and folding.streams.drained
    if drained and not record.training:
        reasons = {*draft.progress.reasons.values()}
        worst = next((word for word in _WORST_FIRST if word in reasons), "finished")
        _close(draft, opening, record.outcome or worst)
    elif record.closing_at and (drained or is_forced(draft, settings)):
        _close(draft, opening, record.outcome)
    elif not record.closing_at and thorough:
        _silence(draft, opening, settings, folding)


def is_forced(draft: Draft, settings: Settings) -> bool:
    """True if the job was told to close and its grace is over."""
    at = draft.record.closing_at
    return bool(at) and draft.now >= at + settings.closing_grace_s


def begin(draft: Draft, word: str, *, at: float) -> None:
    """Tell a job to close; its grace runs from ``at``."""
    draft.change(status=JobStatus.CLOSING, closing_at=at, outcome=word)


def _close(draft: Draft, opening: Opening, word: str) -> None:
    judge = opening.judge()
    if not draft.progress.steps and not draft.progress.no_data:
        outcome.announce_no_data(draft, judge, _why_no_data(draft, opening.inbox))
    outcome.close(draft, judge, word, opening.asking)


def _silence(draft: Draft, opening: Opening, settings: Settings, folding: Folding | None) -> None:
    record, progress = draft.record, draft.progress
    quiet = draft.now - record.last_seen
    if record.training and quiet >= settings.gap_deadline_s and opening.is_over():
        begin(draft, opening.draft.record.training["status"], at=draft.now)
        return
    if not record.training and quiet >= settings.abandoned_after_s:
        begin(draft, ABANDONED, at=draft.now - settings.closing_grace_s)
        return
    since = progress.training_since if record.training else record.opened_at
    if not progress.steps:
        overdue = since and draft.now >= since + settings.no_data_deadline_s
        if overdue and not progress.no_data:
            outcome.announce_no_data(draft, opening.judge(), _why_no_data(draft, opening.inbox))
        return
    if folding is None or folding.blocked or progress.waiting or folding.streams.drained:
        return  # not silent, but waited for
    if any(stream.forged for stream in folding.streams.by_worker.values()):
        return  # not silent either: somebody overwrites what it writes
    # By the container's clock, which may differ from ours: the same time without a step.
    now, engine = progress.time + max(0.0, quiet), folding.judge.engine
    fold = engine.wait(record.rules, now, opening.asking.wait(engine, record.rules, now))
    if fold.state != record.rules or fold.findings:
        outcome.announce(draft, folding.judge, fold, salt=f"wait {record.version}")


def _why_no_data(draft: Draft, inbox: Inbox) -> str:
    """Say what was expected, what was found and how to mend it."""
    record, progress = draft.record, draft.progress
    expected = f"expected saved steps below jobs/{record.job}/"
    if progress.rejected:
        return (
            f"{expected}, found {progress.rejected} objects that are not acceptable; "
            "see the incidents of the job for the reason of each"
        )
    if record.manifest:
        return (
            f"{expected}, found a manifest and no step; check that training reaches "
            "optimizer.step() and that save_interval is not longer than the run"
        )
    if any(inbox.later(StepsKey(record.job, 0, 0), itself=True)):
        return (
            f"{expected} and a manifest, found steps without one; "
            "copy or upload manifest.tw, too: nobody can read steps without it"
        )
    return (
        f"{expected}, found nothing; call trainwarden.watch(model, optimizer) in the training "
        "script, and attach the managed policy of the stack to the training role"
    )


def note_late(draft: Draft, inbox: Inbox, manifest: Manifest | None, keys: Iterable[Key]) -> None:
    """Record steps objects that came after the job was closed, each once."""
    for key in keys:
        if not isinstance(key, StepsKey):
            continue
        first, at = draft.record.watermarks.get(key.worker, (0, 0))
        if key.seq < first or draft.is_full():
            continue
        run, layout = (manifest.run, manifest.layout) if manifest else ("", None)
        if inbox.steps(key, run, layout).nothing:
            continue
        found = f"objects {first} to {key.seq}" + (f", the first from step {at}" if at else "")
        error = BadInputError("no object after the job was closed", found, _LATE)
        draft.reject("LATE", str(key), error, worker=key.worker, seq=first)
        draft.change(watermarks={**draft.record.watermarks, key.worker: (key.seq + 1, 0)})


def note_strangers(draft: Draft, manifest: Manifest, keys: Iterable[Key]) -> None:
    """Record workers that write without being in the manifest, each once."""
    for key in keys:
        if not isinstance(key, StepsKey) or key.worker in manifest.workers:
            continue
        strangers = draft.progress.strangers
        if key.worker in strangers or len(strangers) >= MAX_STRANGERS:
            continue
        error = BadInputError(
            f"objects of workers {', '.join(map(str, manifest.workers))}"[:200],
            f"one of worker {key.worker}",
            "name every worker that writes in the manifest",
        )
        draft.reject("STRANGER", str(key), error, worker=key.worker, seq=key.seq)
        draft.note(strangers=(*strangers, key.worker))
