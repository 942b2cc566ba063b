"""Arrays as zlib streams inside U8 tensors, inflated only to the size that was announced."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainwarden.model import FloatArray
from trainwarden.stats.catalog import WIDTH
from trainwarden.wire.container import Entry, entry
from trainwarden.wire.fields import malformed

MAX_TABLE_BYTES = 64 * 1024 * 1024  # inflated; 1,000 rows at 250 steps
_LEVEL = 1
_COUNTERS = 9  # the first columns count elements


def deflate(array: npt.NDArray[np.generic]) -> Entry:
    """Compress an array's little-endian bytes into a U8 entry."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    packed = zlib.compress(plain.reshape(-1).view(np.uint8).data, _LEVEL)
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


def pack_stats(tables: Sequence[FloatArray], rows: int) -> Entry:
    """Pack S tables (<= rows, 32) float64 as [column, row, step]; missing rows are NaN.

    A column's values of one row lie side by side because they resemble each other.
    """
    stacked = np.full((WIDTH, rows, len(tables)), np.nan)
    for step, table in enumerate(tables):
        stacked[:, : table.shape[0], step] = table.T
    return deflate(stacked)


def unpack_stats(packed: Entry, rows: int, steps: int) -> FloatArray:
    """Undo ``pack_stats``: (S, rows, 32) float64, read-only.

    Raises:
        MalformedObjectError: another size, or counters that count nothing.
    """
    body = inflate(packed, WIDTH * rows * steps * 8, "the statistics table")
    stacked = np.frombuffer(body, "<f8").reshape(WIDTH, rows, steps)
    counters = stacked[:_COUNTERS]
    if np.any((counters < 0) | np.isinf(counters)):
        raise malformed("statistics with counters from 0", "a negative or infinite counter")
    tables = np.ascontiguousarray(stacked.transpose(2, 1, 0), np.float64)
    tables.flags.writeable = False
    return tables
