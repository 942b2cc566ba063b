"""What a recorded run holds that a report shows: numbers, side tables, and few rows of tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainwarden.errors import MalformedObjectError, NotFoundError
from trainwarden.merge import merge
from trainwarden.model import Collection, Layout, Mode, Observation
from trainwarden.report.values import Line
from trainwarden.store.listing import steps_keys
from trainwarden.store.ports import ObjectStore
from trainwarden.wire import codec
from trainwarden.wire.keys import ManifestKey, StepsKey
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, Manifest

_KEPT = (Collection.LABELS, Collection.OUTPUTS)  # tensors of which the statistics are shown
_MAX_ROWS = 32


@dataclass(frozen=True)
class Recorded:
    """A run as it was recorded.

    Attributes:
        manifest: What is known of it as a whole.
        points: Its saved steps in order, workers merged; of tensors, labels and outputs only.
        unread: Objects that cannot be read.
    """

    manifest: Manifest
    points: tuple[Observation, ...] = ()
    unread: int = 0

    @property
    def boosted(self) -> bool:
        """True for a run of XGBoost or LightGBM."""
        return self.manifest.framework.startswith(("xgboost", "lightgbm"))

    def of(self, mode: Mode) -> tuple[Observation, ...]:
        """Return the saved steps of a mode."""
        return tuple(obs for obs in self.points if obs.mode is mode)

    def lines(self, collection: str, mode: Mode) -> list[Line]:
        """Return the curve of each number of a collection, by name."""
        found: dict[str, tuple[list[int], list[float]]] = {}
        for obs in self.of(mode):
            for name, value in obs.scalars.get(collection, {}).items():
                steps, values = found.setdefault(name, ([], []))
                steps.append(obs.step)
                values.append(value)
        return [Line(name, *found[name]) for name in sorted(found)]


def read(objects: ObjectStore, job: str) -> Recorded:
    """Read a recorded run; objects that cannot be read are counted and left out.

    Raises:
        NotFoundError: no such run.
        MalformedObjectError: a manifest that cannot be read.
        RetryableError: the store does not answer.
    """
    body = objects.get(str(ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
    if body is None:
        raise NotFoundError(f"no recorded run {job}: its manifest is missing")
    manifest = Manifest.from_bytes(body)
    seen: dict[tuple[int, Mode, int], dict[int, Observation]] = {}
    unread = 0
    for key in steps_keys(objects, job):
        found = _observations(objects, key, manifest)
        unread += found is None
        for obs in found or ():
            seen.setdefault((obs.step, obs.mode, obs.mode_step), {})[key.worker] = obs
    order = sorted(seen, key=lambda one: (one[0], one[1] is not Mode.TRAIN, one[2]))
    return Recorded(manifest, tuple(merge([*seen[one].values()]) for one in order), unread)


def _observations(
    objects: ObjectStore, key: StepsKey, manifest: Manifest
) -> list[Observation] | None:
    """Read one object; None if it cannot be read, nothing if it is an earlier run's."""
    try:
        body = objects.get(str(key), max_bytes=codec.MAX_OBJECT_BYTES)
        if body is None or codec.run_of(body) != manifest.run:
            return []
        whole = codec.decode(body, manifest.layout, key=key).observations
    except (MalformedObjectError, codec.LayoutUnknownError):
        return None
    rows = _rows(manifest.layout)
    kept = Layout(tuple(manifest.layout.tensors[row] for row in rows))
    return [_trimmed(obs, rows, kept) for obs in whole]


def _trimmed(obs: Observation, rows: list[int], kept: Layout) -> Observation:
    there = [row for row in rows if row < obs.stats.shape[0]]  # rows ascend: the first ones
    return replace(obs, layout=kept, stats=obs.stats[there].copy(), channels={})


def _rows(layout: Layout) -> list[int]:
    return sorted(int(row) for name in _KEPT for row in layout.rows(name))[:_MAX_ROWS]
