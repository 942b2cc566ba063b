"""Several processes that record one run: the first one leads, the others follow.

Where each process holds a part of the model, each uploads the statistics of its part, and the
evaluator adds them up. All that the processes tell each other is under which name the run is
recorded, and who writes: once, in the background, beside the communication of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from trainwarden.errors import BadInputError, RetryableError
from trainwarden.hook.sender import Sender, Sending
from trainwarden.model import Layout, Observation
from trainwarden.stats.catalog import WIDTH
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.keys import ManifestKey
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, Manifest

PATIENCE = 8  # looks at the manifest for a row, with pauses of a minute in all


class NotYetError(RetryableError):
    """The leader is not as far: no trouble, unless it lasts."""


@dataclass(frozen=True)
class Run:
    """What the leader tells.

    Attributes:
        job: Name under which the run is recorded.
        run: As in the manifest.
        workers: Ranks that write.
    """

    job: str
    run: str
    workers: tuple[int, ...]


class Team(Protocol):
    """The processes that train one model; may raise RetryableError."""

    @property
    def size(self) -> int:
        """How many processes there are, whether they write or not."""

    def writers(self) -> tuple[int, ...]:
        """Return the ranks that watch, the leader's among them, ascending."""

    def tell(self, run: Run) -> None:
        """Tell the others what the run is called; by the leader."""

    def told(self) -> Run | None:
        """Return what the leader told; None if it did not yet."""


class Leader(Sender):
    """Writes the manifest, with the names of all who write; arguments as of ``Sender``.

    Args:
        team: Is told of the run.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        worker: int,
        *,
        seal_key: bytes = b"",
        team: Team,
    ) -> None:
        super().__init__(store, manifest, worker, seal_key=seal_key)
        self._team, self._misses = team, 0

    def resume(self, *, continues: bool) -> bool:
        """Look for an earlier run of this name, and tell the others of this one."""
        found = super().resume(continues=continues)
        workers = self._team.writers()
        size = max(self._manifest.world_size, self._team.size)
        self._manifest = replace(self._manifest, workers=workers, world_size=size)
        self._manifest_put = False  # an earlier one may name others
        self._team.tell(Run(self._manifest.job, self._manifest.run, workers))
        return found


class Follower(Leader):
    """Writes under the leader's name, in rows of the leader's manifest."""

    def resume(self, *, continues: bool) -> bool:  # noqa: ARG002 - what the leader found holds
        """Take over the leader's run; True if this worker wrote for it before.

        Raises:
            NotYetError: the leader did not begin to write.
            BadInputError: it does not count on this worker.
        """
        run = self._team.told()
        if run is None:
            raise NotYetError("the first process did not begin to record the run")
        if self._worker not in run.workers:
            raise BadInputError(
                "trainwarden.watch() in each process before the first step",
                f"process {self._worker}, which the first one knows nothing of",
            )
        self._manifest = replace(self._manifest, job=run.job, run=run.run)
        self._read_layout()
        last = self._last_seq()
        self._seq = last + 1
        return last >= 0

    def prepare(self, observations: tuple[Observation, ...], dropped: Mapping[str, int]) -> Sending:
        """Put observations into the leader's rows; those it does not have are left out.

        Raises:
            NotYetError: a row is not in its manifest yet.
            MalformedObjectError: no object can hold them.
        """
        names = {name for obs in observations for name in obs.layout.names}
        if not names <= self._written.row_of.keys() and self._misses < PATIENCE:
            self._misses += 1
            self._read_layout()
            if not names <= self._written.row_of.keys():
                raise NotYetError("the first process has other tensors than this one")
        own = tuple(_in_rows_of(self._written, obs) for obs in observations)
        return super().prepare(own, dropped)

    def _read_layout(self) -> None:
        body = self._store.get(str(ManifestKey(self.job)), max_bytes=MAX_MANIFEST_BYTES)
        manifest = Manifest.from_bytes(body) if body else None
        if manifest is None or manifest.run != self._manifest.run:
            raise NotYetError("the manifest of the first process is not there")
        self._written = manifest.layout


def _in_rows_of(layout: Layout, obs: Observation) -> Observation:
    """Return an observation with its rows where ``layout`` has them."""
    names = obs.layout.names[: len(obs.stats)]
    kept = [(row, layout.row_of[name]) for row, name in enumerate(names) if name in layout.row_of]
    stats = np.full((len(layout.tensors), WIDTH), np.nan)
    if kept:
        ours, theirs = map(list, zip(*kept, strict=True))
        stats[theirs] = obs.stats[ours]
    return replace(obs, layout=layout, stats=stats)


def sender(
    store: ObjectStore,
    manifest: Manifest,
    worker: int,
    *,
    seal_key: bytes = b"",
    team: Team | None = None,
) -> Sender:
    """Return what writes the objects of a worker; arguments as of ``Sender``."""
    if team is None:
        return Sender(store, manifest, worker, seal_key=seal_key)
    kind = Follower if worker else Leader
    return kind(store, manifest, worker, seal_key=seal_key, team=team)
