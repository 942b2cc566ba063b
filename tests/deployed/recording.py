"""A run recorded once, replayed under other job names and cut into as many objects as wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden.model import Observation
from trainwarden.pipeline import check
from trainwarden.store.folder import FolderObjects
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import Entry, EntryKind
from trainwarden.wire import codec, keys
from trainwarden.wire.manifest import End, Manifest

LARGE = 64 * 1024 * 1024


@dataclass(frozen=True)
class Recording:
    """A manifest and every saved step, in order."""

    manifest: Manifest
    observations: tuple[Observation, ...]

    def objects(self, job: str, steps_per_object: int = 3) -> Iterator[tuple[str, bytes]]:
        """Yield (key, body): the manifest, the steps, the end."""
        manifest = replace(self.manifest, job=job)
        yield str(keys.ManifestKey(job)), manifest.to_bytes()
        parts = range(0, len(self.observations), steps_per_object)
        for seq, start in enumerate(parts):
            steps = self.observations[start : start + steps_per_object]
            body = codec.encode(codec.StepsObject(job, 0, seq, manifest.run, steps))
            yield str(keys.StepsKey(job, 0, seq)), body
        end = End(job, 0, manifest.run, len(parts) - 1)
        yield str(keys.EndKey(job, 0)), end.to_bytes()


def record(folder: Path, script: Path, epochs: int) -> Recording:
    """Run a training script that records to a folder, and read what it recorded."""
    subprocess.run(
        [sys.executable, str(script), "--epochs", str(epochs)],
        cwd=folder,
        env={**os.environ, "TRAINWARDEN_OUT": str(folder / "runs")},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    store = FolderObjects(folder / "runs")
    job = next(store.keys("jobs/")).split("/")[1]
    body = store.get(str(keys.ManifestKey(job)), max_bytes=LARGE)
    assert body is not None
    manifest = Manifest.from_bytes(body)
    observations: list[Observation] = []
    for name in store.keys(keys.steps_prefix(job, 0)):
        key = keys.parse(name)
        steps = store.get(name, max_bytes=LARGE)
        assert isinstance(key, keys.StepsKey)
        assert steps is not None
        observations += codec.decode(steps, manifest.layout, key=key).observations
    return Recording(manifest, tuple(observations))


def judged(objects: Mapping[str, bytes]) -> dict[str, Entry]:
    """Return the findings of folding these objects in order, in memory: what must come out."""
    ledger = MemoryLedger()
    found = check(MemoryObjects(objects), ledger=ledger)
    return {entry.id: entry for entry in ledger.entries(found.job, EntryKind.FINDING)}
