"""Which seals a job's objects must carry, and what is said of one that does not carry it."""

from __future__ import annotations

from trainwarden.errors import BadInputError
from trainwarden.pipeline.draft import Draft
from trainwarden.policy import run_key
from trainwarden.store import records
from trainwarden.store.ports import JobRecord


def known_key(record: JobRecord) -> bytes:
    """Return the key of a job's seals, empty while SageMaker's description is not known."""
    training = records.training_from_json(record.training)
    return run_key(training) if training else b""


def required_key(draft: Draft) -> bytes:
    """Return the key of the seals that a job's objects must carry, empty if they need none."""
    return known_key(draft.record) if draft.progress.sealed else b""


def not_sealed(what: str) -> BadInputError:
    """Say that somebody else wrote an object of a sealed run."""
    return BadInputError(
        f"{what} sealed by this run",
        "not sealed by this run: written by somebody else",
        "find out which role wrote it (S3 data events in CloudTrail); the run is judged without it",
    )
