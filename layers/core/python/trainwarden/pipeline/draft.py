"""A record being changed, with the entries and events that its next commit will write."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from trainwarden import events
from trainwarden.engine import CRASH_CODE
from trainwarden.errors import BadInputError
from trainwarden.model import Finding, Json, Severity
from trainwarden.pipeline.progress import Progress
from trainwarden.store.ports import Entry, EntryKind, JobRecord, Ledger

FULL = 12  # entries at which a commit is due; one step more must still fit
MAX_ENTRIES = 90  # DynamoDB: 100 items in a transaction; the record and the outbox take some
KEPT_REFUSALS = 255  # of 65 manifest and end objects, and of the forged ones last seen
OUTBOX_BYTES = 300_000  # DynamoDB: 400 KB in an item


class Draft:
    """One unit of work: everything in it is written in one conditional commit, or nothing is.

    Attributes:
        record: The record as it will be; its version is still the one that was read.
        progress: The pipeline's part of it.
        now: Seconds since the epoch, the ledger's clock.
    """

    def __init__(self, record: JobRecord, now: float) -> None:
        self.record, self.now = record, now
        self._rules = record.rules
        self.progress = Progress.from_json(record.progress)
        self.findings = self.rejected = self.lost = self.crashed = 0
        self._entries: list[Entry] = []
        self._events: list[events.Event] = []
        self._changed = False

    def is_full(self) -> bool:
        """True if no further step should be folded before a commit."""
        return len(self._entries) >= FULL

    @property
    def changed(self) -> bool:
        """True if there is anything to commit."""
        return self._changed or bool(self._entries) or bool(self._events)

    @property
    def judged(self) -> bool:
        """True if the rules' states are new and there are any."""
        return self.record.rules is not self._rules and bool(self.record.rules)

    def change(self, **fields: Json) -> None:
        """Set fields of the record."""
        # Rule states are large, and new after each fold: not worth a comparison.
        self._changed = self._changed or any(
            name == "rules" or getattr(self.record, name) != value for name, value in fields.items()
        )
        self.record = replace(self.record, **fields)

    def note(self, **fields: Json) -> None:
        """Set fields of the progress."""
        after = replace(self.progress, **fields)
        self._changed = self._changed or after != self.progress
        self.progress = after

    def tell(self, event: events.Event) -> None:
        """Send an event with the commit."""
        self._events.append(event)

    def find(self, finding: Finding, *, salt: str) -> None:
        """Record a finding and tell it; ``salt`` makes its id unique among equal findings."""
        severity = finding.severity or Severity.WARNING
        text = f"{self.progress.attempt}/{salt}/{finding.tensor}"
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        id_ = f"{max(finding.step, 0):012d}#{finding.rule}#{digest}"
        if len(self._entries) < MAX_ENTRIES:
            body = {**vars(finding), "severity": severity.value, "remedies": list(finding.remedies)}
            self._entries.append(Entry(EntryKind.FINDING, id_, body))
        self.findings += 1
        self.crashed += finding.code == CRASH_CODE
        self.tell(events.finding_recorded(self.record, finding, severity=severity, time=self.now))

    def reject(self, kind: str, key: str, error: BadInputError, *, worker: int, seq: int) -> None:
        """Record that an object was set aside and tell it."""
        what = {"expected": error.expected, "found": error.found, "remedy": error.remedy}
        self._incident(kind, worker, seq, {"key": key, **what})
        self.rejected += 1
        self.note(rejected=self.progress.rejected + 1)
        self.tell(events.data_rejected(self.record, key=key, time=self.now, **what))

    def reject_once(
        self, kind: str, key: str, error: BadInputError, digest: str, worker: int = 0
    ) -> None:
        """Do the same for a manifest or end object, which is looked at more than once."""
        refused = self.progress.refused
        if refused.get(key) != digest:
            self.reject(kind, key, error, worker=worker, seq=self.progress.rejected)
            kept = [item for item in refused.items() if item[0] != key][-KEPT_REFUSALS:]
            self.note(refused={**dict(kept), key: digest})

    def lose(self, worker: int, first: int, last: int, reason: str) -> None:
        """Record that objects ``first`` to ``last`` of a worker are given up and tell it."""
        body = {"first_seq": first, "last_seq": last, "reason": reason}
        self._incident("LOST", worker, first, body)
        self.lost += last - first + 1
        holes = sorted({*self.progress.holes, worker})
        self.note(lost=self.progress.lost + last - first + 1, holes=tuple(holes))
        self.tell(
            events.data_lost(
                self.record,
                worker=worker,
                first_seq=first,
                last_seq=last,
                reason=reason,
                time=self.now,
            )
        )

    def act(self, id_: str, body: dict[str, Json]) -> None:
        """Record an action."""
        self._entries.append(Entry(EntryKind.ACTION, id_, body))

    def touch(self) -> None:
        """Make sure that a job heard of for the first time has a record."""
        self._changed = self._changed or self.record.version == 0

    def commit(self, ledger: Ledger) -> JobRecord:
        """Write everything at once and return the record as it is now stored.

        Raises:
            ConflictError: another writer committed first; nothing was written.
            RetryableError: throttled or unreachable.
        """
        if not self.changed:
            return self.record
        version = self.record.version + 1
        record = replace(self.record, version=version, progress=self.progress.to_json())
        ledger.commit(record, [*self._entries, *self._outbox(version)])
        return record

    def _incident(self, kind: str, worker: int, seq: int, body: dict[str, Json]) -> None:
        attempt = self.progress.attempt
        id_ = f"{kind}#{worker:04d}#{seq:010d}" + (f"#{attempt}" if attempt > 1 else "")
        full = {"kind": kind, "worker": worker, "seq": seq, **body, "time": self.now}
        self._entries.append(Entry(EntryKind.INCIDENT, id_, full))

    def _outbox(self, version: int) -> list[Entry]:
        """Return the events, in as few items as hold them."""
        parts: list[list[events.Event]] = []
        room = 0
        for event in self._events:
            size = events.size(event)
            if size > room:
                parts.append([])
                room = OUTBOX_BYTES
            parts[-1].append(event)
            room -= size
        return [
            Entry(EntryKind.OUTBOX, f"{version:010d}" + (f".{i}" if i else ""), {"events": part})
            for i, part in enumerate(parts)
        ]
