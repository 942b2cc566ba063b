"""Traces that SageMaker Debugger recorded: ``<S3OutputPath>/<job>/debug-output/``.

An index file says that a worker has finished a step, and where in the event file each value lies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwarden.errors import BadInputError
from trainwarden.store.ports import ObjectStore
from trainwarden.trial import event, framing, numbers
from trainwarden.trial.index import (
    MAX_COLLECTIONS_BYTES,
    MAX_EVENT_BYTES,
    MAX_INDEX_BYTES,
    Place,
    Written,
    collections_worker,
    parse_collections,
    parse_index,
    step_and_worker,
)
from trainwarden.trial.source import Array, CollectionInfo, Moment, Unknown, Workers
from trainwarden.wire.fields import malformed

_END = "training_job_end.ts"
_KEPT_FILES = 4  # event files held in memory, the last used
_KEPT_BYTES = 256 * 1024 * 1024


class Files:
    """The objects below a prefix; event files are read whole and the last few are kept."""

    def __init__(self, objects: ObjectStore, prefix: str = "") -> None:
        self._objects, self._prefix = objects, prefix
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def keys(self, folder: str, after: str = "") -> Sequence[str]:
        """Return keys below a folder, ascending, without the prefix."""
        start = len(self._prefix)
        after = self._prefix + after if after else ""
        return [key[start:] for key in self._objects.keys(self._prefix + folder, after=after)]

    def get(self, key: str, max_bytes: int) -> bytes | None:
        """Return an object, None if there is none."""
        return self._objects.get(self._prefix + key, max_bytes=max_bytes)

    def event(self, key: str) -> bytes | None:
        """Return an event file, None if there is none."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        body = self.get(key, MAX_EVENT_BYTES)
        if body is not None:
            self._kept[key] = body
            while len(self._kept) > 1 and (
                len(self._kept) > _KEPT_FILES or sum(map(len, self._kept.values())) > _KEPT_BYTES
            ):
                self._kept.popitem(last=False)
        return body


@dataclass(frozen=True)
class RecordedCell:
    """One tensor at one step and worker, in files."""

    files: Files
    tensor: str
    step: int
    place: Place | None
    reductions: Mapping[str, Place]
    known_shape: tuple[int, ...] | None

    @property
    def saved(self) -> Sequence[str]:
        """Reductions that were saved."""
        return sorted(self.reductions)

    def value(self) -> Array:
        """Return the values as they were recorded."""
        if self.place is None:
            kept = ", ".join(self.saved) or ("the shape" if self.known_shape is not None else "")
            raise Unknown(f"its values were not saved, only {kept or 'nothing'}")
        return self._read(self.place, self.tensor)

    def reduction(self, name: str, *, absolute: bool) -> float:
        """Return a reduction as it was saved, else from the values."""
        wanted = f"abs_{numbers.canonical(name)}" if absolute else numbers.canonical(name)
        if wanted in self.reductions:
            # As saved by the framework: torch's std and variance divide by n - 1.
            found = self._read(self.reductions[wanted], "")
            if found.size != 1 or found.dtype.kind not in "biuf":
                raise malformed(f"one number for {wanted} of {self.tensor}", str(found.shape))
            return float(found.reshape(-1)[0])
        return numbers.of_array(self.value(), name, absolute=absolute)

    def shape(self) -> tuple[int, ...]:
        """Return the shape as saved, else that of the values."""
        return self.known_shape if self.known_shape is not None else self.value().shape

    def time(self) -> float:
        """Return when it was saved, seconds since the epoch, UTC; 0 if unknown."""
        place = self.place or next(iter(self.reductions.values()), None)
        return self._event(place).time if place is not None else 0.0

    def _read(self, place: Place, tag: str) -> Array:
        found = self._event(place)
        if tag and found.tag != tag:
            expected = f"{self.tensor} of step {self.step} at byte {place.start} of {place.file}"
            raise malformed(expected, found.tag)
        return found.value

    def _event(self, place: Place) -> event.Event:
        body = self.files.event(place.file)
        if body is None:
            raise Unknown(f"its event file {place.file} is missing")
        payload = framing.payload(memoryview(body), place.start, place.length, place.file)
        found = event.decode(payload, f"{place.file} at byte {place.start}")
        if found.step != self.step:
            expected = f"step {self.step} at byte {place.start} of {place.file}"
            raise malformed(expected, f"step {found.step}")
        return found


class RecordedSource:
    """A trace as a trial's source.

    Args:
        objects: Where it lies.
        prefix: What all its keys begin with, empty or ending in a slash.
        name: Name of the job.
    """

    def __init__(self, objects: ObjectStore, prefix: str, name: str) -> None:
        self.name = name
        self.finished = False
        self.num_workers = 1
        self._files = Files(objects, prefix)
        self._read = set[str]()
        self._workers = set[str]()
        self._collections: dict[str, CollectionInfo] | None = None
        self._moments: dict[Moment, set[str]] = {}
        self._tensors: dict[str, dict[Moment, dict[str, RecordedCell]]] = {}

    @property
    def workers(self) -> Sequence[str]:
        """Names of the workers that have written something, ascending."""
        return sorted(self._workers)

    @property
    def collections(self) -> Mapping[str, CollectionInfo]:
        """Collections as the first worker wrote them; empty until it did."""
        return self._collections or {}

    @property
    def moments(self) -> Mapping[Moment, frozenset[str]]:
        """Every saved step with the workers that wrote it, in order."""
        return {moment: frozenset(self._moments[moment]) for moment in sorted(self._moments)}

    @property
    def tensors(self) -> Mapping[str, Mapping[Moment, Workers]]:
        """Tensor → saved step → worker → where it lies."""
        return self._tensors

    def cells(self, tensor: str) -> Mapping[Moment, Mapping[str, RecordedCell]]:
        """Return saved step → worker → where a tensor lies."""
        return self._tensors.get(tensor, {})

    def refresh(self) -> None:
        """Read index files that came since.

        Raises:
            MalformedObjectError: a file that is not what its name says.
            BadInputError: what is here is no trace.
        """
        self.finished = (
            self._files.get(_END, 1024) is not None
        )  # first: what came before it is there
        if self._collections is None:
            self._read_collections()
        for key in self._files.keys("index/"):
            if key not in self._read and step_and_worker(key) is not None:
                body = self._files.get(key, MAX_INDEX_BYTES)
                if body is not None:
                    self._add(parse_index(body, key))
                    self._read.add(key)
        if self._collections is None and not self._read and not self.finished:
            raise BadInputError(
                "a trace of SageMaker Debugger with collections/ and index/",
                "neither",
                "give the folder debug-output of the job",
            )

    def _read_collections(self) -> None:
        for key in self._files.keys("collections/"):
            worker = collections_worker(key)
            body = self._files.get(key, MAX_COLLECTIONS_BYTES) if worker else None
            if body is not None:
                self._collections, self.num_workers = parse_collections(body, key)
                return

    def _add(self, written: Written) -> None:
        moment, worker = written.moment, written.worker
        self._workers.add(worker)
        self._moments.setdefault(moment, set()).add(worker)
        for name in {**written.values, **written.reductions, **written.shapes}:
            cell = RecordedCell(
                self._files,
                name,
                moment.step,
                written.values.get(name),
                written.reductions.get(name, {}),
                written.shapes.get(name),
            )
            self._tensors.setdefault(name, {}).setdefault(moment, {})[worker] = cell
