"""The pipeline's own bookkeeping of a job, kept in ``JobRecord.progress`` as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from trainwarden.model import Json


@dataclass(frozen=True)
class Progress:
    """Where the fold stands, beside the watermarks.

    Attributes:
        attempt: 1 for the first run of the job, one more after each restart.
        sealed: Fingerprint of the key with which the run's manifest is sealed; empty if it is not.
            From then on objects without its seal are refused.
        superseded: Earlier runs of the job, the last 20; their objects are invisible.
        opened: True once the configuration is resolved and ``Job Opened`` was told.
        step: Last folded step of this attempt; -1 if none.
        time: The training container's clock at that step, seconds since the epoch.
        steps: Observations folded in this attempt.
        objects: Steps objects folded to their end.
        rejected: Objects set aside.
        lost: Objects that never came and were skipped.
        dropped: What the hook said it could not save, by reason.
        waiting: Worker → since when (ledger's clock) the others wait for it, or it has a gap.
        waived: Workers the others no longer wait for until they have caught up.
        holes: Workers of which something was lost since their last folded step.
        reasons: Worker → why it ended, from its end object.
        refused: Key → digest of a manifest or end object that was refused, so that it is once.
        strangers: Workers that wrote without being in the manifest.
        training_since: When SageMaker was first seen ``Training``; 0 if it was not.
        stop: Outcome of the last stop that was tried: ``stopped``, ``refused``, ``dry_run``,
            ``failed``; empty if none was.
        no_data: Why there is no data, for a person; empty if there is some, or it is early.
    """

    attempt: int = 1
    sealed: str = ""
    superseded: tuple[str, ...] = ()
    opened: bool = False
    step: int = -1
    time: float = 0.0
    steps: int = 0
    objects: int = 0
    rejected: int = 0
    lost: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[int, float] = field(default_factory=dict)
    waived: tuple[int, ...] = ()
    holes: tuple[int, ...] = ()
    reasons: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    strangers: tuple[int, ...] = ()
    training_since: float = 0.0
    stop: str = ""
    no_data: str = ""

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form that ``from_json`` reads."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> Progress:
        """Read what ``to_json`` wrote; absent keys have their defaults."""
        known = {f.name: body[f.name] for f in fields(cls) if f.name in body}
        for name in ("superseded", "waived", "holes", "strangers"):
            known[name] = tuple(known.get(name, ()))
        for name in ("waiting", "reasons"):
            known[name] = {int(worker): value for worker, value in known.get(name, {}).items()}
        return cls(**known)


def _plain(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
