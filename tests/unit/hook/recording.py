"""Reads back what a hook recorded, and stores that fail on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwarden.errors import TrainwardenError
from trainwarden.hook.uploader import Limits
from trainwarden.model import Collection, Mode, Observation
from trainwarden.stats.derived import STATISTICS
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.codec import MAX_OBJECT_BYTES, StepsObject, decode
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey, parse, steps_prefix
from trainwarden.wire.manifest import End, Manifest

QUICK = Limits(first_flush_s=0.01, flush_s=0.01, retry_s=0.001, max_retry_s=0.002, control_s=0.01)
LAZY = Limits(first_flush_s=1e6, flush_s=1e6)  # nothing is sent until asked for


@dataclass
class Recording:
    """Everything a job wrote."""

    manifest: Manifest
    objects: list[StepsObject]
    end: End | None

    @property
    def observations(self) -> list[Observation]:
        return [obs for obj in self.objects for obs in obj.observations]

    def of(self, mode: Mode) -> list[Observation]:
        return [obs for obs in self.observations if obs.mode is mode]

    @property
    def steps(self) -> list[int]:
        return [obs.step for obs in self.of(Mode.TRAIN)]

    def scalars(
        self, name: str, collection: str = Collection.LOSSES, mode: Mode = Mode.TRAIN
    ) -> list[float]:
        return [
            obs.scalars[collection][name]
            for obs in self.of(mode)
            if name in obs.scalars.get(collection, {})
        ]

    def values(self, tensor: str, stat: str, mode: Mode = Mode.TRAIN) -> list[float]:
        """A statistic of one tensor at each saved step; NaN where it was not captured."""
        row = self.manifest.layout.row_of[tensor]
        return [
            float(STATISTICS[stat].compute(obs.stats[row : row + 1])[0])
            if row < len(obs.stats)
            else float("nan")
            for obs in self.of(mode)
        ]

    def names(self, collection: str) -> list[str]:
        return [t.name for t in self.manifest.layout.tensors if t.collection == collection]

    @property
    def dropped(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for obj in self.objects:
            for reason, number in obj.dropped.items():
                found[reason] = found.get(reason, 0) + number
        return found


def read(store: ObjectStore, job: str = "job", worker: int = 0) -> Recording:
    body = store.get(str(ManifestKey(job)), max_bytes=MAX_OBJECT_BYTES)
    assert body is not None, "no manifest"
    manifest = Manifest.from_bytes(body)
    objects = []
    for position, key in enumerate(store.keys(steps_prefix(job, worker))):
        parsed = parse(key)
        assert parsed == StepsKey(job, worker, position), "numbers have a gap"
        found = store.get(key, max_bytes=MAX_OBJECT_BYTES)
        assert found is not None
        objects.append(decode(found, manifest.layout, key=parsed))
    body = store.get(str(EndKey(job, worker)), max_bytes=MAX_OBJECT_BYTES)
    return Recording(manifest, objects, End.from_bytes(body) if body else None)


@dataclass
class Flaky:
    """A store whose ``put`` raises the errors given, one a call, before it works."""

    errors: list[TrainwardenError]
    inner: MemoryObjects = field(default_factory=MemoryObjects)
    puts: list[str] = field(default_factory=list)

    def put(self, key: str, body: bytes) -> None:
        self.puts.append(key)
        if self.errors:
            raise self.errors.pop(0)
        self.inner.put(key, body)

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        self.inner.replace(key, body, before=before)

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        return self.inner.get(key, max_bytes=max_bytes)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        return self.inner.keys(prefix, after=after)


class Crashing(MemoryObjects):
    """A store whose first so many ``put`` raise what no store should."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def put(self, key: str, body: bytes) -> None:
        if self.times:
            self.times -= 1
            raise RecursionError("too deep")
        super().put(key, body)
