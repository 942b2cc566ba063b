"""Our own runs as a trial's source: manifest, steps objects and end objects of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trainwarden.errors import MalformedObjectError, NotFoundError
from trainwarden.model import Observation
from trainwarden.store.listing import steps_keys
from trainwarden.store.ports import ObjectStore
from trainwarden.trial.seen import Seen
from trainwarden.trial.source import CollectionInfo, Moment, Workers
from trainwarden.wire import codec
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import MAX_END_BYTES, MAX_MANIFEST_BYTES, End, Manifest


class OwnSource:
    """A run that ``trainwarden.watch`` recorded.

    Args:
        objects: Where it lies.
        job: Name of the job.
    """

    def __init__(self, objects: ObjectStore, job: str) -> None:
        self.name = job
        self.finished = False
        self._objects = objects
        self._manifest: Manifest | None = None
        self._seen = Seen()
        self._last = dict[int, str]()  # worker → key of the last object read

    @property
    def num_workers(self) -> int:
        """How many workers write."""
        return len(self._manifest.workers) if self._manifest else 1

    @property
    def manifest(self) -> Manifest | None:
        """What is known of the run as a whole; None until it was written."""
        return self._manifest

    @property
    def workers(self) -> Sequence[str]:
        """Names of the workers that have written something."""
        return self._seen.workers

    @property
    def collections(self) -> Mapping[str, CollectionInfo]:
        """Collections of the tensors and scalars that were saved."""
        return self._seen.collections

    @property
    def moments(self) -> Mapping[Moment, frozenset[str]]:
        """Every saved step with its workers."""
        return self._seen.moments

    @property
    def tensors(self) -> Mapping[str, Mapping[Moment, Workers]]:
        """Tensor or scalar → saved step → worker → what was kept."""
        return self._seen.tensors

    def observations(self) -> Iterable[Observation]:
        """Yield each saved step once, its workers merged, in order."""
        return self._seen.merged()

    def refresh(self) -> None:
        """Read objects that came since.

        Raises:
            NotFoundError: no such job.
            MalformedObjectError: an object that nobody can read.
            RetryableError: the store does not answer.
        """
        body = self._objects.get(str(ManifestKey(self.name)), max_bytes=MAX_MANIFEST_BYTES)
        if body is None:
            raise NotFoundError(f"no job {self.name} here: its manifest is missing")
        manifest = Manifest.from_bytes(body)
        if self._manifest is not None and manifest.run != self._manifest.run:
            self._seen, self._last = Seen(), {}  # the job was started anew
        self._manifest = manifest
        ended = [self._ended(worker, manifest) for worker in manifest.workers]
        for worker in manifest.workers:
            after = self._last.get(worker, "")
            for key in steps_keys(self._objects, self.name, worker, after=after):
                self._read(key, manifest)
        self.finished = all(ended)

    def _ended(self, worker: int, manifest: Manifest) -> bool:
        body = self._objects.get(str(EndKey(self.name, worker)), max_bytes=MAX_END_BYTES)
        return body is not None and End.from_bytes(body).run == manifest.run

    def _read(self, key: StepsKey, manifest: Manifest) -> None:
        body = self._objects.get(str(key), max_bytes=codec.MAX_OBJECT_BYTES)
        if body is None:
            return
        try:
            found = codec.decode(body, manifest.layout, key=key)
        except codec.LayoutUnknownError:
            return  # newer than the manifest: the next look reads it
        except MalformedObjectError:
            if codec.run_of(body) == manifest.run:
                raise
            return  # an earlier run's, of another layout
        if found.run == manifest.run:
            for obs in found.observations:
                self._seen.add(obs, key.worker)
        self._last[key.worker] = str(key)
