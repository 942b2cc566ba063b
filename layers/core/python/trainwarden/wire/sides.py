"""Side tables of a steps object: scalars, per-channel activity, label counts, histograms.

Each has its names in the header and its numbers in tensors; an entry is (step index, name index,
...), so a name costs nothing at the steps that lack it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trainwarden.model import Channels, IntArray, Json, Observation
from trainwarden.wire.container import Container, Entry, entry
from trainwarden.wire.fields import Fields, malformed
from trainwarden.wire.names import MAX_NAME_CHARS
from trainwarden.wire.tables import deflate, inflate, packed_tensor, tensor

MAX_NAMES = 20_000
MAX_ENTRIES = 200_000
MAX_VALUES = 4_000_000
_INDEX_WIDTH = 4
_WIDTHS = (1, 2, 4, 8)

HISTOGRAM_BINS = 769  # of wire version 1, as in ``stats.histogram``

Histograms = Mapping[tuple[int, str], IntArray]
Scalars = Mapping[str, Mapping[str, float]]
Header = dict[str, Json]
Tensors = dict[str, Entry]


def _check_names(kind: str, names: Sequence[str]) -> None:
    """Never write what no reader takes."""
    if len(names) > MAX_NAMES or any(len(name) > MAX_NAME_CHARS for name in names):
        expected = f"{kind} of at most {MAX_NAMES} names of {MAX_NAME_CHARS} characters"
        raise malformed(expected, f"{len(names)} names, the longest of {max(map(len, names))}")


def pack_scalars(observations: Sequence[Observation], header: Header, tensors: Tensors) -> None:
    """Write scalars as F64 [step, name], with a mask where a step lacks some."""
    names = sorted({(str(c), n) for obs in observations for c, m in obs.scalars.items() for n in m})
    if not names:
        return
    _check_names("scalars", [part for name in names for part in name])
    column = {name: i for i, name in enumerate(names)}
    values = np.zeros((len(observations), len(names)))
    present = np.zeros(values.shape, dtype=np.bool_)
    for step, obs in enumerate(observations):
        for collection, members in obs.scalars.items():
            for name, value in members.items():
                i = column[str(collection), name]
                values[step, i], present[step, i] = value, True
    header["scalars"] = [list(name) for name in names]
    tensors["scalars"] = entry(values)
    if not present.all():
        tensors["scalars.present"] = entry(present)


def unpack_scalars(found: Container, header: Fields, steps: int) -> list[Scalars]:
    """Undo ``pack_scalars``; NaN and ±inf are values.

    Raises:
        MalformedObjectError: names or shapes that do not fit.
    """
    result: list[dict[str, dict[str, float]]] = [{} for _ in range(steps)]
    if "scalars" not in header:
        return list(result)
    names = _scalar_names(header)
    shape = (steps, len(names))
    values = tensor(found, "scalars", "F64", shape).array().tolist()
    if "scalars.present" in found.tensors:
        present = tensor(found, "scalars.present", "BOOL", shape).array().view(np.uint8).tolist()
    else:
        present = [[1] * len(names)] * steps
    for scalars, row, mask in zip(result, values, present, strict=True):
        for (collection, name), value, there in zip(names, row, mask, strict=True):
            if there:
                scalars.setdefault(collection, {})[name] = value
    return list(result)


def _scalar_names(header: Fields) -> list[tuple[str, str]]:
    names = []
    for pair in header.items("scalars", MAX_NAMES):
        if (
            not isinstance(pair, list)
            or len(pair) != 2  # noqa: PLR2004 - collection, name
            or not all(isinstance(part, str) and len(part) <= MAX_NAME_CHARS for part in pair)
        ):
            raise malformed("scalars as [collection, name]", repr(pair))
        names.append((pair[0], pair[1]))
    if len(set(names)) != len(names):
        raise malformed("unique scalars", "a name that occurs twice")
    return names


def _pack_index(kind: str, names: Sequence[str], index: npt.ArrayLike, tensors: Tensors) -> Header:
    _check_names(kind, names)
    entries = np.array(index, dtype=np.int64).reshape(-1, _INDEX_WIDTH)
    if len(entries) > MAX_ENTRIES:
        raise malformed(f"at most {MAX_ENTRIES} entries of {kind}", str(len(entries)))
    tensors[f"{kind}.index"] = deflate(entries)
    return {"names": list(names), "entries": len(entries)}


def _unpack_index(
    found: Container, kind: str, side: Fields, steps: int
) -> tuple[list[str], IntArray]:
    """Names and entries (E, 4) int64 of (step, name, a, b); steps and names are in range."""
    names = side.texts("names", MAX_NAMES, MAX_NAME_CHARS)
    count = side.integer("entries", 0, MAX_ENTRIES)
    size = count * _INDEX_WIDTH * 8
    body = inflate(packed_tensor(found, f"{kind}.index"), size, f"the index of {kind}")
    index = np.frombuffer(body, "<i8").reshape(count, _INDEX_WIDTH).astype(np.int64)
    limits = np.array([steps, len(names)])
    if np.any(index[:, :2] < 0) or np.any(index[:, :2] >= limits):
        raise malformed(f"{kind} of known steps and names", "an index out of range")
    return names, index


def _unique(kind: str, keys: npt.NDArray[np.int64]) -> None:
    if len(np.unique(keys, axis=0)) != len(keys):
        raise malformed(f"{kind} once a step", "an entry that occurs twice")


def pack_channels(observations: Sequence[Observation], header: Header, tensors: Tensors) -> None:
    """Write per-channel activity: an index and the counts in the narrowest width that holds."""
    names = sorted({name for obs in observations for name in obs.channels})
    if not names:
        return
    index, counts = [], []
    for step, obs in enumerate(observations):
        for i, name in enumerate(names):
            if name in obs.channels:
                active, seen = obs.channels[name]
                index.append((step, i, len(active), int(seen)))
                counts.append(np.asarray(active, dtype=np.int64))
    joined = np.concatenate(counts)
    most = np.repeat([seen for *_, seen in index], [size for *_, size, _ in index])
    if np.any(joined < 0) or np.any(joined > most):
        raise malformed("channels active in 0 to all of what was seen", "another count")
    top = int(joined.max()) if joined.size else 0
    width = next(w for w in _WIDTHS if top < 2 ** (8 * w - (w == _WIDTHS[-1])))
    tensors["channels.active"] = deflate(joined.astype(f"<u{width}"))
    header["channels"] = {**_pack_index("channels", names, index, tensors), "width": width}


def unpack_channels(found: Container, header: Fields, steps: int) -> list[Mapping[str, Channels]]:
    """Undo ``pack_channels``.

    Raises:
        MalformedObjectError: names, counts or lengths that do not fit.
    """
    result: list[dict[str, Channels]] = [{} for _ in range(steps)]
    if "channels" not in header:
        return list(result)
    side = Fields(header.mapping("channels"), "channels")
    names, index = _unpack_index(found, "channels", side, steps)
    _unique("channels", index[:, :2])
    width = side.integer("width", 1, 8)
    sizes = index[:, 2]
    if width not in _WIDTHS or np.any(index[:, 2:] < 0):
        raise malformed("channel counts from 0 in 1, 2, 4 or 8 bytes", f"width {width}")
    total = sum(sizes.tolist())
    if total > MAX_VALUES:
        raise malformed(f"activity of at most {MAX_VALUES} channels", str(total))
    body = inflate(packed_tensor(found, "channels.active"), total * width, "channel activity")
    active = np.frombuffer(body, f"<u{width}").astype(np.int64)
    if np.any(active < 0) or np.any(active > np.repeat(index[:, 3], sizes)):
        raise malformed("channels active in at most what was seen", "a larger count")
    begin = 0
    for step, name, size, seen in index.tolist():
        result[step][names[name]] = Channels(active[begin : begin + size], seen)
        begin += size
    return list(result)


def pack_labels(observations: Sequence[Observation], header: Header, tensors: Tensors) -> None:
    """Write label counts as entries (step, name, value, count)."""
    names = sorted({name for obs in observations for name in obs.labels})
    if not names:
        return
    index = [
        (step, i, int(value), int(count))
        for step, obs in enumerate(observations)
        for i, name in enumerate(names)
        for value, count in sorted(obs.labels.get(name, {}).items())
    ]
    if any(count < 0 for *_, count in index):
        raise malformed("label counts from 0", "a negative count")
    header["labels"] = _pack_index("labels", names, index, tensors)


def unpack_labels(
    found: Container, header: Fields, steps: int
) -> list[Mapping[str, Mapping[int, int]]]:
    """Undo ``pack_labels``.

    Raises:
        MalformedObjectError: names or counts that do not fit.
    """
    result: list[dict[str, dict[int, int]]] = [{} for _ in range(steps)]
    if "labels" not in header:
        return list(result)
    side = Fields(header.mapping("labels"), "labels")
    names, index = _unpack_index(found, "labels", side, steps)
    _unique("labels", index[:, :3])
    if np.any(index[:, 3] < 0):
        raise malformed("label counts from 0", "a negative count")
    for step, name, value, count in index.tolist():
        result[step].setdefault(names[name], {})[value] = count
    return list(result)


def pack_histograms(histograms: Histograms, steps: int, header: Header, tensors: Tensors) -> None:
    """Write histograms as entries (step, name, bin, count) of the bins that hold anything.

    A histogram without any element is not written.
    """
    if not histograms:
        return
    names = sorted({name for _, name in histograms})
    position = {name: i for i, name in enumerate(names)}
    parts = [np.empty((0, _INDEX_WIDTH), np.int64)]
    for (step, name), counts in sorted(histograms.items(), key=lambda item: item[0]):
        if counts.shape != (HISTOGRAM_BINS,) or counts.min() < 0 or not 0 <= step < steps:
            raise malformed(f"counts ({HISTOGRAM_BINS},) of a step", f"{counts.shape}, step {step}")
        bins = np.flatnonzero(counts)
        entries = np.empty((bins.size, _INDEX_WIDTH), np.int64)
        entries[:] = (step, position[name], 0, 0)
        entries[:, 2], entries[:, 3] = bins, counts[bins]
        parts.append(entries)
    header["histograms"] = _pack_index("histograms", names, np.concatenate(parts), tensors)


def unpack_histograms(found: Container, header: Fields, steps: int) -> Histograms:
    """Undo ``pack_histograms``.

    Raises:
        MalformedObjectError: names, bins or counts that do not fit.
    """
    if "histograms" not in header:
        return {}
    side = Fields(header.mapping("histograms"), "histograms")
    names, index = _unpack_index(found, "histograms", side, steps)
    _unique("histograms", index[:, :3])
    if np.any(index[:, 2:] < 0) or np.any(index[:, 2] >= HISTOGRAM_BINS):
        raise malformed(f"counts from 0 in {HISTOGRAM_BINS} bins", "an entry out of range")
    pairs, owner = np.unique(index[:, :2], axis=0, return_inverse=True)
    if len(pairs) * HISTOGRAM_BINS > MAX_VALUES:
        raise malformed(f"histograms of at most {MAX_VALUES} bins", f"{len(pairs)} histograms")
    counts = np.zeros((len(pairs), HISTOGRAM_BINS), np.int64)
    counts[owner.reshape(-1), index[:, 2]] = index[:, 3]
    return {(step, names[name]): counts[i] for i, (step, name) in enumerate(pairs.tolist())}
