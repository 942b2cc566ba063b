"""Steps objects: bytes ⇄ observations.

A steps object is a valid safetensors file. Its metadata holds one string, ``trainwarden``: strict
JSON with everything but the numbers. ``docs/wire-format.md`` describes it for other readers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainwarden.errors import RetryableError
from trainwarden.model import Json, Layout, Mode, Observation, TensorInfo
from trainwarden.wire import seal
from trainwarden.wire.container import Container, pack, unpack
from trainwarden.wire.fields import Fields, dump_json, malformed, parse_json
from trainwarden.wire.keys import MAX_WORKER, StepsKey
from trainwarden.wire.manifest import (
    MAX_RUN_CHARS,
    MAX_TENSORS,
    WIRE_VERSION,
    check_wire,
    layout_hash,
)
from trainwarden.wire.sides import (
    Header,
    Histograms,
    Tensors,
    pack_channels,
    pack_histograms,
    pack_labels,
    pack_scalars,
    unpack_channels,
    unpack_histograms,
    unpack_labels,
    unpack_scalars,
)
from trainwarden.wire.tables import MAX_TABLE_BYTES, WIDTH, pack_stats, unpack_stats

__all__ = [
    "MAX_OBJECT_BYTES",
    "MAX_STEPS",
    "WIRE_VERSION",
    "LayoutUnknownError",
    "StepsObject",
    "decode",
    "encode",
    "run_of",
]

MAX_OBJECT_BYTES = 8 * 1024 * 1024
MAX_STEPS = 1_000
MAX_SEQ = 10**10 - 1  # ten digits in the key
_HEADER = "trainwarden"
_ROW_BYTES = WIDTH * 8
_WHAT = "steps object"


class LayoutUnknownError(RetryableError):
    """The object has more rows than the layout: a later manifest must be read first."""


@dataclass(frozen=True)
class StepsObject:
    """One or more saved steps of one worker.

    Attributes:
        job: Job name, as in the key.
        worker: Rank, as in the key.
        seq: Number of the object, as in the key.
        run: The run, as in the manifest.
        observations: In the order they were saved; the last one's layout extends the others'.
        dropped: What the hook could not save since the previous object, by reason.
        histograms: (index into ``observations``, tensor name) -> (769,) int64 counts of
            ``stats.histogram``; only where the hook was asked for them.
    """

    job: str
    worker: int
    seq: int
    run: str
    observations: tuple[Observation, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)


def encode(obj: StepsObject, *, sealable: bool = False) -> bytes:
    """Return the object's bytes; equal objects give equal bytes.

    Args:
        obj: The steps.
        sealable: With a place for ``wire.seal.sealed``.

    Raises:
        MalformedObjectError: no steps, too many steps, rows or bytes, numbers out of range.
    """
    observations = obj.observations
    if not 1 <= len(observations) <= MAX_STEPS:
        raise malformed(f"1 to {MAX_STEPS} steps in an object", str(len(observations)))
    tensors = _longest_layout(observations)
    rows = len(tensors)
    if rows * len(observations) * _ROW_BYTES > MAX_TABLE_BYTES:
        raise malformed(
            f"a table of at most {MAX_TABLE_BYTES} bytes",
            f"{rows} rows x {len(observations)} steps",
        )
    header: Header = {
        "wire": WIRE_VERSION,
        "job": obj.job,
        "worker": obj.worker,
        "seq": obj.seq,
        "run": obj.run,
        "rows": rows,
        "layout": _prefix_hash(observations[-1].layout, rows),
        "steps": [_step_json(obs, obj.worker) for obs in observations],
        "dropped": {str(reason): int(count) for reason, count in obj.dropped.items()},
    }
    _check_writable(Fields(header, _WHAT))
    found: Tensors = {}
    if rows:
        found.update(pack_stats([obs.stats for obs in observations], rows))
    pack_scalars(observations, header, found)
    pack_channels(observations, header, found)
    pack_labels(observations, header, found)
    pack_histograms(obj.histograms, len(observations), header, found)
    # Sorted, the seal comes first in the file, where nothing can pass for it.
    place = {seal.FIELD: seal.BLANK} if sealable else {}
    body = pack(found, {**place, _HEADER: dump_json(header).decode()})
    if len(body) > MAX_OBJECT_BYTES:
        raise malformed(f"an object of at most {MAX_OBJECT_BYTES} bytes", str(len(body)))
    return body


def _check_writable(header: Fields) -> None:
    """Never write what no reader takes; steps and side tables see to themselves."""
    _key(header)
    header.integer("rows", 0, MAX_TENSORS)
    header.text("run", MAX_RUN_CHARS)
    header.counters("dropped")


def _longest_layout(observations: Sequence[Observation]) -> Sequence[TensorInfo]:
    last = observations[-1].layout.tensors
    for obs in observations:
        tensors = obs.layout.tensors
        if tensors is not last and tensors != last[: len(tensors)]:
            raise malformed("layouts that extend each other", "one that does not")
        if obs.stats.ndim != 2 or obs.stats.shape[1] != WIDTH or len(obs.stats) > len(last):  # noqa: PLR2004 - rows, columns
            raise malformed(f"statistics (<= {len(last)}, {WIDTH})", str(obs.stats.shape))
    return last


def _step_json(obs: Observation, worker: int) -> dict[str, Json]:
    found: dict[str, Json] = {
        "step": int(obs.step),
        "mode": str(obs.mode),
        "mode_step": int(obs.mode_step),
        "time": float(obs.time),
    }
    if obs.workers != (worker,):
        found["workers"] = [int(rank) for rank in obs.workers]
    if obs.partial:
        found["partial"] = True
    _step(Fields(found, "observation"), worker)  # never write what no reader takes
    return found


def _prefix_hash(layout: Layout, rows: int) -> str:
    """Hash of the first ``rows`` tensors, kept with the layout as ``cached_property`` keeps its."""
    known: dict[int, str] = vars(layout).setdefault("_prefix_hashes", {})
    if rows not in known:
        known[rows] = layout_hash(layout.tensors[:rows])
    return known[rows]


def decode(body: bytes, layout: Layout, *, key: StepsKey) -> StepsObject:
    """Read a steps object that lay at ``key``.

    Every observation gets ``layout`` itself; its ``stats`` has the object's rows, perhaps fewer.

    Raises:
        MalformedObjectError: anything that ``encode`` does not write, or another job's, worker's or
            layout's object.
        LayoutUnknownError: more rows than ``layout`` has; read the manifest again.
    """
    if len(body) > MAX_OBJECT_BYTES:
        raise malformed(f"an object of at most {MAX_OBJECT_BYTES} bytes", str(len(body)))
    found = unpack(body)
    header = Fields(parse_json(found.metadata.get(_HEADER, "").encode(), _WHAT), _WHAT)
    check_wire(header, "a steps object")
    seal.check_seal(Fields(found.metadata, _WHAT))
    _check_key(header, key)
    rows = header.integer("rows", 0, MAX_TENSORS)
    steps = [_step(item, key.worker) for item in header.objects("steps", MAX_STEPS)]
    if not steps:
        raise malformed("at least one step", "none")
    run, dropped = header.text("run", MAX_RUN_CHARS), header.counters("dropped")
    _check_layout(header, layout, rows)
    return StepsObject(
        job=key.job,
        worker=key.worker,
        seq=key.seq,
        run=run,
        observations=_observations(found, header, layout, rows, steps),
        dropped=dropped,
        histograms=unpack_histograms(found, header, len(steps)),
    )


def run_of(body: bytes) -> str:
    """Return the run that wrote a steps object, without reading it; its layout may be any.

    Raises:
        MalformedObjectError: no steps object.
    """
    if len(body) > MAX_OBJECT_BYTES:
        raise malformed(f"an object of at most {MAX_OBJECT_BYTES} bytes", str(len(body)))
    header = unpack(body).metadata.get(_HEADER, "")
    return Fields(parse_json(header.encode(), _WHAT), _WHAT).text("run", MAX_RUN_CHARS)


def _key(header: Fields) -> StepsKey:
    return StepsKey(
        header.text("job", 256),
        header.integer("worker", 0, MAX_WORKER),
        header.integer("seq", 0, MAX_SEQ),
    )


def _check_key(header: Fields, key: StepsKey) -> None:
    seen = _key(header)
    if seen != key:
        raise malformed(f"the object of {tuple(key)}", f"that of {tuple(seen)}")


def _check_layout(header: Fields, layout: Layout, rows: int) -> None:
    if rows > len(layout.tensors):
        raise LayoutUnknownError(f"{rows} rows, but the manifest read has {len(layout.tensors)}")
    expected, seen = _prefix_hash(layout, rows), header.text("layout", 64)
    if seen != expected:
        raise malformed(f"rows of layout {expected}", seen)


def _step(fields: Fields, worker: int) -> dict[str, Json]:
    """Read one step's part of the header as keyword arguments of ``Observation``."""
    mode = fields.text("mode", 16)
    if mode not in Mode.__members__:
        raise malformed(f"a mode of {', '.join(Mode.__members__)}", repr(mode))
    workers = [worker]
    if "workers" in fields:
        workers = fields.integers("workers", MAX_WORKER + 1, 0, MAX_WORKER)
    return {
        "step": fields.integer("step"),
        "mode": Mode(mode),
        "mode_step": fields.integer("mode_step"),
        "time": fields.number("time"),
        "workers": tuple(workers),
        "partial": fields.flag("partial") if "partial" in fields else False,
    }


def _observations(
    found: Container, header: Fields, layout: Layout, rows: int, steps: Sequence[Mapping[str, Json]]
) -> tuple[Observation, ...]:
    count = len(steps)
    stats = unpack_stats(found, rows, count) if rows else np.empty((count, 0, WIDTH))
    sides = zip(
        unpack_scalars(found, header, count),
        unpack_channels(found, header, count),
        unpack_labels(found, header, count),
        strict=True,
    )
    return tuple(
        Observation(
            layout=layout, stats=stats[i], scalars=scalars, channels=channels, labels=labels, **step
        )
        for i, (step, (scalars, channels, labels)) in enumerate(zip(steps, sides, strict=True))
    )
