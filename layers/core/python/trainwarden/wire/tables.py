"""Arrays as zlib streams inside U8 tensors, and the statistics table as byte planes.

A table is cut into planes: byte ``b`` of column ``c`` for every row and step. Exponents and counts
make planes that compress well, mantissas make planes that do not and only cost time; the encoder
sorts them by a sample. ``docs/wire-format.md`` shows how to read a table in a dozen lines.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trainwarden.model import FloatArray
from trainwarden.wire.container import Container, Entry, entry
from trainwarden.wire.fields import malformed

WIDTH = 32  # columns of wire version 1, in the order of ``stats.catalog``
MAX_TABLE_BYTES = 32 * 1024 * 1024  # as float64; 2,600 rows at 50 steps
_LEVEL = 1
_COUNTERS = (*range(9), 17, 25, 26, 27, 30, 31)  # count elements, channels, rows, or hold flags
_ALWAYS = 7  # the first columns are there in every row that was captured
_CONSTANT, _SINGLE, _DOUBLE = 0, 1, 2  # codes of a column in ``stats.columns``
_RAW, _PACKED = 0, 1  # codes of a plane in ``stats.planes``
_SAMPLE = 64
_MANY = 20  # distinct bytes among 64 above which zlib saves too little for its time

Bytes = npt.NDArray[np.uint8]


def deflate(array: npt.NDArray[np.generic], strategy: int = zlib.Z_DEFAULT_STRATEGY) -> Entry:
    """Compress an array's little-endian bytes into a U8 entry."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, strategy)
    packed = stream.compress(plain.reshape(-1).view(np.uint8).data) + stream.flush()
    return entry(np.frombuffer(packed, np.uint8))


def inflate(packed: Entry, size: int, what: str) -> bytes:
    """Decompress exactly ``size`` bytes.

    Raises:
        MalformedObjectError: not U8, no zlib stream, or of another length; never more than
            ``size`` + 1 bytes are inflated.
    """
    if size > MAX_TABLE_BYTES:
        raise malformed(f"{what} of at most {MAX_TABLE_BYTES} bytes", str(size))
    if packed.dtype != "U8" or len(packed.shape) != 1:
        raise malformed(f"{what} as a U8 vector", f"{packed.dtype} {packed.shape}")
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(packed.data, size + 1)
    except zlib.error as error:
        raise malformed(f"{what} as a zlib stream", str(error)) from error
    if len(found) != size or not stream.eof or stream.unused_data:
        raise malformed(f"{what} of {size} bytes", f"{len(found)} or more, or an unfinished stream")
    return found


def tensor(found: Container, name: str, dtype: str, shape: tuple[int, ...]) -> Entry:
    """Return a tensor of exactly this type and shape.

    Raises:
        MalformedObjectError: there is none.
    """
    item = found.tensors.get(name)
    if item is None or item.dtype != dtype or item.shape != shape:
        seen = "none" if item is None else f"{item.dtype} {item.shape}"
        raise malformed(f"tensor {name!r}, {dtype} {shape}", seen)
    return item


def packed_tensor(found: Container, name: str) -> Entry:
    """Return a tensor whose length only ``inflate`` can judge.

    Raises:
        MalformedObjectError: there is none.
    """
    item = found.tensors.get(name)
    if item is None:
        raise malformed(f"tensor {name!r}", "none")
    return item


def _check_counters(stacked: FloatArray) -> None:
    for column in _COUNTERS:
        counters = stacked[column]
        if np.any((counters < 0) | np.isinf(counters)):
            raise malformed("statistics with counters from 0", "a negative or infinite counter")
    gone = np.isnan(stacked[:_ALWAYS])
    if np.any(gone & ~gone[0]):
        raise malformed("statistics with counters from 0", "a row that lacks some")


def pack_stats(tables: Sequence[FloatArray], rows: int) -> Mapping[str, Entry]:
    """Pack S tables (<= rows, 32) float64; missing rows are NaN. Every bit survives.

    Raises:
        MalformedObjectError: a negative or infinite counter, or one that lacks.
    """
    stacked = np.empty((WIDTH, rows, len(tables)))
    for step, table in enumerate(tables):
        stacked[:, : len(table), step] = table.T
        stacked[:, len(table) :, step] = np.nan
    _check_counters(stacked)
    words = stacked.reshape(WIDTH, -1).view(np.uint64)
    live = (words != words[:, :1]).any(axis=1)
    varying = words[live]
    with np.errstate(all="ignore"):
        single = varying.view(np.float64).astype(np.float32)
        exact = (single.astype(np.float64).view(np.uint64) == varying).all(axis=1)
    columns = np.zeros(WIDTH, np.uint8)
    columns[live] = np.where(exact, _SINGLE, _DOUBLE)
    planes = np.concatenate([_split(single[exact]), _split(varying[~exact])])
    rough = _rough(planes)
    return {
        "stats.columns": entry(columns),
        "stats.constants": entry(words[~live, 0].view(np.float64)),
        "stats.planes": entry(np.where(rough, _RAW, _PACKED).astype(np.uint8)),
        "stats.raw": entry(planes[rough]),
        "stats.packed": deflate(planes[~rough], zlib.Z_RLE),
    }


def _split(values: npt.NDArray[np.generic]) -> Bytes:
    """Cut (K, N) values of b bytes into (K * b, N) planes, lowest byte first."""
    count, size = values.shape
    width = values.dtype.itemsize
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    split = plain.view(np.uint8).reshape(count, size, width).transpose(0, 2, 1)
    return np.ascontiguousarray(split).reshape(count * width, size)


def _join(planes: Bytes, dtype: str) -> npt.NDArray[np.generic]:
    """Undo ``_split``: (K, N) values."""
    width, size = np.dtype(dtype).itemsize, planes.shape[1]
    joined = planes.reshape(-1, width, size).transpose(0, 2, 1)
    return np.ascontiguousarray(joined).view(dtype).reshape(-1, size)


def _rough(planes: Bytes) -> npt.NDArray[np.bool_]:
    """Tell the planes that look random in an evenly spread sample, (P,) bool."""
    sample = np.sort(planes[:, :: max(1, planes.shape[1] // _SAMPLE)][:, :_SAMPLE], axis=1)
    distinct = (sample[:, 1:] != sample[:, :-1]).sum(axis=1)
    found: npt.NDArray[np.bool_] = distinct * _SAMPLE > _MANY * sample.shape[1]
    return found


def unpack_stats(found: Container, rows: int, steps: int) -> FloatArray:
    """Undo ``pack_stats``: (S, rows, 32) float64, read-only.

    Raises:
        MalformedObjectError: parts that do not fit each other, or counters that count nothing.
    """
    size = rows * steps
    if size * WIDTH * 8 > MAX_TABLE_BYTES:
        raise malformed(f"a table of at most {MAX_TABLE_BYTES} bytes", f"{rows} rows x {steps}")
    columns = _codes(tensor(found, "stats.columns", "U8", (WIDTH,)), _DOUBLE)
    constant, single, double = (columns == code for code in (_CONSTANT, _SINGLE, _DOUBLE))
    singles, doubles = int(single.sum()) * 4, int(double.sum()) * 8
    planes = _planes(found, singles + doubles, size)
    constants = tensor(found, "stats.constants", "F64", (int(constant.sum()),)).array()
    stacked = np.empty((WIDTH, size))
    stacked[constant] = constants[:, np.newaxis]
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        stacked[single] = _join(planes[:singles], "<f4")
    stacked[double] = _join(planes[singles:], "<f8")
    _check_counters(stacked)
    tables = np.ascontiguousarray(stacked.reshape(WIDTH, rows, steps).transpose(2, 1, 0))
    tables.flags.writeable = False
    return tables


def _codes(item: Entry, highest: int) -> Bytes:
    codes = np.frombuffer(item.data, np.uint8)
    if codes.size and codes.max() > highest:
        raise malformed(f"codes from 0 to {highest}", str(codes.max()))
    return codes


def _planes(found: Container, count: int, size: int) -> Bytes:
    codes = _codes(tensor(found, "stats.planes", "U8", (count,)), _PACKED)
    raw = codes == _RAW
    rough = int(raw.sum())
    planes = np.empty((count, size), np.uint8)
    planes[raw] = tensor(found, "stats.raw", "U8", (rough, size)).array()
    smooth = inflate(packed_tensor(found, "stats.packed"), (count - rough) * size, "the table")
    planes[~raw] = np.frombuffer(smooth, np.uint8).reshape(count - rough, size)
    return planes
