"""Index and collections files of a trace that SageMaker Debugger recorded: strict JSON, bounded."""

from __future__ import annotations

import re
from typing import NamedTuple

from trainwarden.errors import MalformedObjectError
from trainwarden.model import Json, Mode
from trainwarden.trial.source import CollectionInfo, Moment
from trainwarden.wire.fields import Fields, malformed, parse_json

MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_COLLECTIONS_BYTES = 16 * 1024 * 1024
MAX_EVENT_BYTES = 1 << 30
REDUCTION = "smdebug/reductions/"
_INDEX = re.compile(r"index/\d{9}/(?P<step>\d{12})_(?P<worker>[^/]+)\.json")
_COLLECTIONS = re.compile(r"collections/\d{9}/(?P<worker>[^/]+)_collections\.json")
_EVENT = re.compile(r"events/\d{12}/[^/\\]+\.tfevents")
_MAX_TENSORS, _MAX_NAME_CHARS, _MAX_PATTERNS = 1_000_000, 4096, 1000
_MAX_DIMENSIONS, _MAX_COLLECTIONS = 64, 10_000


class Place(NamedTuple):
    """Where a value lies: one record of an event file, framing included."""

    file: str
    start: int
    length: int


class Written(NamedTuple):
    """What one index file says: the values of one step and worker.

    Attributes:
        moment: The step; its mode is the index's, never the record's.
        worker: Name of the worker.
        values: Tensor → where its values lie.
        reductions: Tensor → reduction → where it lies.
        shapes: Tensor → shape.
    """

    moment: Moment
    worker: str
    values: dict[str, Place]
    reductions: dict[str, dict[str, Place]]
    shapes: dict[str, tuple[int, ...]]


def step_and_worker(key: str) -> tuple[int, str] | None:
    """Return what the name of an index file says; None for any other file."""
    found = _INDEX.fullmatch(key)
    return (int(found["step"]), worker_name(found["worker"])) if found else None


def collections_worker(key: str) -> str | None:
    """Return the worker that wrote a collections file; None for any other file."""
    found = _COLLECTIONS.fullmatch(key)
    return worker_name(found["worker"]) if found else None


def worker_name(written: str) -> str:
    """Return a worker's name; devices of TensorFlow are written as ``_job-worker_task-1_…``."""
    if not written.startswith("_"):
        return written
    return written.replace("_", "/").replace("-", ":")


def parse_index(body: bytes, key: str) -> Written:
    """Read an index file.

    Raises:
        MalformedObjectError: it is none.
    """
    known = step_and_worker(key)
    if known is None:
        raise malformed("an index file", key)
    step, worker = known
    index = Fields(_object(body, key), key)
    meta = Fields(index.mapping("meta"), f"{key}: meta")
    mode = meta.text("mode", 16)
    if mode not in Mode.__members__:
        raise malformed(f"a mode of {', '.join(Mode.__members__)} in {key}", repr(mode))
    moment = Moment(step, Mode(mode), meta.integer("mode_step"))
    file = ""
    if "event_file_name" in meta:
        file = meta.text("event_file_name", 1024)
        if not _EVENT.fullmatch(file) or ".." in file:
            raise malformed(f"an event file below events/ in {key}", repr(file))
    found = Written(moment, worker, {}, {}, {})
    for one in index.objects("tensor_payload", _MAX_TENSORS):
        if not file:
            raise malformed(f"an event_file_name in {key}", "none")
        place = Place(file, one.integer("start_idx"), one.integer("length"))
        _put(found, one.text("tensorname", _MAX_NAME_CHARS), place)
    payload = index.objects("shape_payload", _MAX_TENSORS) if "shape_payload" in index else []
    for one in payload:
        shape = tuple(one.integers("shape", _MAX_DIMENSIONS))
        found.shapes[one.text("tensorname", _MAX_NAME_CHARS)] = shape
    return found


def _put(found: Written, name: str, place: Place) -> None:
    """File a record under its tensor; of several with one name the last stands."""
    before, prefix, rest = name.partition(REDUCTION)
    reduction, slash, tensor = rest.partition("/")
    if prefix and not before and slash:
        found.reductions.setdefault(tensor, {})[reduction] = place
    else:
        found.values[name] = place


def parse_collections(body: bytes, key: str) -> tuple[dict[str, CollectionInfo], int]:
    """Read a collections file: collections by name, and how many workers write.

    Raises:
        MalformedObjectError: it is none, or holds a regular expression that is none.
    """
    document = Fields(_object(body, key), key)
    found: dict[str, CollectionInfo] = {}
    for name, content in document.mapping("collections", _MAX_COLLECTIONS).items():
        if not isinstance(content, dict):
            raise malformed(f"a collection {name!r} in {key}", repr(content))
        found[name] = _collection(name, Fields(content, f"{key}: {name}"))
    meta = Fields(document.mapping("_meta"), key) if "_meta" in document else None
    workers = meta.integer("num_workers", 1, 1_000_000) if meta and "num_workers" in meta else 1
    return found, workers


def _collection(name: str, fields: Fields) -> CollectionInfo:
    patterns = tuple(_texts(fields, "include_regex", _MAX_PATTERNS))
    for pattern in patterns:
        _compile(pattern)
    return CollectionInfo(
        name,
        frozenset(_texts(fields, "tensor_names", _MAX_TENSORS)),
        patterns,
        _mapping(fields, "save_config"),
        _mapping(fields, "reduction_config"),
    )


def _compile(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise malformed("regular expressions of a collection", f"{pattern!r}: {error}") from error


def _texts(fields: Fields, name: str, most: int) -> list[str]:
    return fields.texts(name, most, _MAX_NAME_CHARS) if name in fields else []


def _mapping(fields: Fields, name: str) -> dict[str, Json]:
    found = fields.json(name) if name in fields else {}
    return found if isinstance(found, dict) else {}


def _object(body: bytes, key: str) -> dict[str, Json]:
    try:
        return parse_json(body, key)
    except MalformedObjectError as error:
        raise malformed(f"{error.expected} ({key})", error.found) from error
