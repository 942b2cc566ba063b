"""Ports: what the pipeline asks of the outside world. Adapters live beside this module.

Every port has one contract suite in ``tests/contract`` that all of its adapters pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from trainwarden.model import Json


class ObjectStore(Protocol):
    """A bucket, or a folder that looks like one. Keys come from ``wire.keys``."""

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return the object, None if there is none.

        Raises:
            MalformedObjectError: larger than ``max_bytes`` (never read into memory).
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever (no such bucket, access denied); not about this object.
        """
        ...

    def put(self, key: str, body: bytes) -> None:
        """Write the object whole or not at all; overwrites.

        Raises:
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever (no such bucket, access denied, wrong region).
        """
        ...

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield keys below ``prefix`` in ascending order, those > ``after`` only."""
        ...

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        """Write the object if it is still ``before``; None: if there is none.

        Raises:
            ConflictError: it is another one by now; nothing was written.
            RetryableError: throttled or unreachable.
            BadInputError: refused for ever, as ``put``.
        """
        ...


class JobStatus(str, Enum):
    """Where a job stands in the ledger."""

    ANNOUNCED = "Announced"  # the manifest or SageMaker's description is still awaited
    OPEN = "Open"
    CLOSING = "Closing"  # ended; the last objects are being folded
    CLOSED = "Closed"


@dataclass(frozen=True)
class JobRecord:
    """Everything the ledger knows of a job but its findings; one item, one version.

    Attributes:
        job: Job name.
        version: 0 before the first commit; each commit adds one.
        status: Where the job stands.
        opened_at: Seconds since the epoch, UTC, when the ledger first heard of it.
        last_seen: When the last saved step was folded; ``opened_at`` before that.
        closing_at: When it was told to close; 0 if it was not.
        gap_since: When a missing object was first noticed with a later one present; 0 if none.
        config: The resolved ``JobConfig`` as JSON; empty until resolved.
        training: SageMaker's description (``TrainingJob`` as JSON); empty outside SageMaker.
        manifest: ``Manifest.summary()`` as JSON; empty until it came.
        watermarks: worker → [seq, index]: the next saved step to fold.
        ended: worker → last seq it wrote (-1: none), from its end object.
        rules: The engine's state, JSON.
        outcome: Why it ended: ``Completed``, ``Failed``, ``Stopped``, ``finished``, …
        progress: The pipeline's own bookkeeping, JSON (``pipeline.progress``): last folded step,
            attempts, late workers, counters.
    """

    job: str
    version: int = 0
    status: JobStatus = JobStatus.ANNOUNCED
    opened_at: float = 0.0
    last_seen: float = 0.0
    closing_at: float = 0.0
    gap_since: float = 0.0
    config: Mapping[str, Json] = field(default_factory=dict)
    training: Mapping[str, Json] = field(default_factory=dict)
    manifest: Mapping[str, Json] = field(default_factory=dict)
    watermarks: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    ended: Mapping[int, int] = field(default_factory=dict)
    rules: Mapping[str, Json] = field(default_factory=dict)
    outcome: str = ""
    progress: Mapping[str, Json] = field(default_factory=dict)


class EntryKind(str, Enum):
    """What is written beside the record, append-only."""

    FINDING = "FINDING"  # id <step:012d>#<rule>#<hash of tensor>
    INCIDENT = "INCIDENT"  # data rejected or lost; id <kind>#<worker:04d>#<seq:010d>
    ACTION = "ACTION"  # id <kind>#<rule>
    OUTBOX = "OUT"  # id <version:010d>; body {"events": [envelope, ...]}, a message (``records``)


@dataclass(frozen=True)
class Entry:
    """One append-only entry of a job, ``body`` is JSON.

    ``(kind, id)`` is unique in the job: the first one written stands, a later one is passed over
    without an error, so that a repeated finding can never block the commits of its job.
    """

    kind: EntryKind
    id: str
    body: Mapping[str, Json]


class Ledger(Protocol):
    """The table that holds jobs, verdicts, findings, actions and the outbox."""

    def load(self, job: str) -> JobRecord | None:
        """Read a job's record, strongly consistent; None if the job is unknown."""
        ...

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        """Write the record and its entries, all or nothing.

        ``record.version`` is the version after this commit: it succeeds only if the stored
        version is one less (or there is no record and it is 1). At most 96 entries.

        Raises:
            ConflictError: another writer committed first; nothing was written.
            RetryableError: throttled or unreachable.
            TooLargeError: the record is larger than the store takes; a smaller one may fit.
            BadInputError: more entries, or more bytes, than one commit holds; refused for ever.
        """
        ...

    def entries(self, job: str, kind: EntryKind) -> Iterator[Entry]:
        """Yield a job's entries of one kind in ascending order of id, strongly consistent."""
        ...

    def open_jobs(self) -> Iterator[str]:
        """Yield the names of jobs that are not ``CLOSED``; may lag behind a commit."""
        ...

    def jobs(self) -> Iterator[JobRecord]:
        """Yield every job's record, in no order; for people, not for the hot path."""
        ...


@dataclass(frozen=True)
class TrainingJob:
    """SageMaker's description of a training job, as far as trainwarden reads it.

    Attributes:
        name: Training job name.
        arn: ARN of the training job.
        status: ``InProgress``, ``Completed``, ``Failed``, ``Stopping`` or ``Stopped``.
        secondary_status: ``Starting``, ``Training``, ``MaxRuntimeExceeded``, …
        tags: All tags of the job.
        hyperparameters: As given to CreateTrainingJob.
        debug_hook: ``DebugHookConfig``, empty if none.
        debug_rules: ``DebugRuleConfigurations``, empty if none.
        failure: ``FailureReason``, empty if none.
        instance: ``ResourceConfig.InstanceType``, for the cost line of the message.
    """

    name: str
    arn: str
    status: str
    secondary_status: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    debug_hook: Mapping[str, Json] = field(default_factory=dict)
    debug_rules: Sequence[Mapping[str, Json]] = ()
    failure: str = ""
    instance: str = ""


class TrainingJobs(Protocol):
    """What is asked of SageMaker: reading only. Stopping is the state machine's business."""

    def describe(self, name: str) -> TrainingJob | None:
        """Describe the job of exactly this name with its tags; None if there is none.

        Raises:
            RetryableError: throttled or unreachable.
        """
        ...


class CustomRules(Protocol):
    """Where rules of the user's own run, apart from everything that they could harm."""

    def ask(self, question: bytes) -> bytes:
        """Return the answer, which nobody has looked at yet; both are ``custom.protocol``'s.

        Raises:
            RetryableError: throttled or unreachable, again and again.
            BadInputError: it crashed, took too long or is not there.
        """
        ...
