"""In-memory adapters of every port. Public: use them in tests of your own rules and tools.

They pass the same contract suite as the adapters of S3, DynamoDB and folders, keep what they hold
as bytes (nothing is shared with the caller) and may be used from several threads.

Example:
    >>> objects, ledger = MemoryObjects(), MemoryLedger()
    >>> objects.put("jobs/demo/control.json", b"{}")
    >>> objects.get("jobs/demo/control.json", max_bytes=100)
    b'{}'
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainwarden.errors import ConflictError, MalformedObjectError
from trainwarden.store import records
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus, TrainingJob
from trainwarden.wire.keys import job_name


class MemoryObjects:
    """An ``ObjectStore`` in a dict.

    Args:
        objects: What lies in it from the beginning, key → body.
    """

    def __init__(self, objects: Mapping[str, bytes] | None = None) -> None:
        self._objects = {key: bytes(body) for key, body in (objects or {}).items()}
        self._lock = threading.Lock()

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the object, None if there is none.

        Raises:
            MalformedObjectError: larger than ``max_bytes``.
        """
        with self._lock:
            body = self._objects.get(key)
        if body is not None and len(body) > max_bytes:
            raise MalformedObjectError(
                f"an object of at most {max_bytes} bytes", f"{len(body)} bytes at {key}"
            )
        return body

    def put(self, key: str, body: bytes) -> None:
        """Write the object; overwrites."""
        with self._lock:
            self._objects[key] = bytes(body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write the object if it is still ``before``; None: if there is none.

        Raises:
            ConflictError: it is another one by now.
        """
        with self._lock:
            if self._objects.get(key) != before:
                raise ConflictError(f"{key} was changed meanwhile")
            self._objects[key] = bytes(body)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the keys below ``prefix`` as of now, ascending, those > ``after`` only."""
        with self._lock:
            found = sorted(key for key in self._objects if key.startswith(prefix) and key > after)
        yield from found

    def delete(self, key: str) -> None:
        """Lose an object, if it is there; no port asks for this, tests do."""
        with self._lock:
            self._objects.pop(key, None)


class MemoryLedger:
    """A ``Ledger`` in dicts; a commit is atomic under a lock."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[int, str]] = {}  # job → version, record as JSON
        self._entries: dict[tuple[str, EntryKind], dict[str, str]] = {}  # → id → body as JSON
        self._lock = threading.Lock()

    def load(self, job: str) -> JobRecord | None:
        """Read a job's record; None if the job is unknown."""
        with self._lock:
            found = self._records.get(job_name(job))
        return records.record_from_text(found[1]) if found else None

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        """Write the record and its entries, all or nothing; an entry that exists stays as it is.

        Raises:
            ConflictError: another writer committed first; nothing was written.
            BadInputError: more than 96 entries.
        """
        kept = records.checked(record, entries)
        texts = [(entry.kind, entry.id, records.body_to_text(entry)) for entry in kept]
        text = records.record_to_text(record)
        with self._lock:
            seen = self._records.get(record.job, (0, ""))[0]
            if record.version != seen + 1:
                raise ConflictError(
                    f"{record.job}: version {seen} is stored, not {record.version - 1}"
                )
            self._records[record.job] = (record.version, text)
            for kind, id_, body in texts:
                self._entries.setdefault((record.job, kind), {}).setdefault(id_, body)

    def entries(self, job: str, kind: EntryKind) -> Iterator[Entry]:
        """Yield a job's entries of one kind in ascending order of id."""
        with self._lock:
            found = sorted(self._entries.get((job_name(job), kind), {}).items())
        for id_, body in found:
            yield Entry(kind, id_, records.body_from_text(kind, body))

    def open_jobs(self) -> Iterator[str]:
        """Yield the names of jobs that are not ``CLOSED``."""
        return (record.job for record in self.jobs() if record.status is not JobStatus.CLOSED)

    def jobs(self) -> Iterator[JobRecord]:
        """Yield every job's record."""
        with self._lock:
            found = list(self._records.values())
        for _, text in found:
            yield records.record_from_text(text)


class MemoryTrainingJobs:
    """``TrainingJobs`` in a dict: SageMaker as far as trainwarden reads it.

    Args:
        jobs: The jobs there are from the beginning.
    """

    def __init__(self, jobs: Iterable[TrainingJob] = ()) -> None:
        self._jobs = {job.name: job for job in jobs}

    def add(self, job: TrainingJob) -> None:
        """Create the job, or describe it anew."""
        self._jobs[job.name] = job

    def describe(self, name: str) -> TrainingJob | None:
        """Describe the job of exactly this name; None if there is none."""
        return self._jobs.get(name)
