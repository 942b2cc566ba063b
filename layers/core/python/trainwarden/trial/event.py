"""One recorded value: the ``Event`` message that a record holds, as an array.

Field numbers::

    Event            1 wall_time double  2 step int64  5 summary
    Summary          1 value (one)
    Value            1 tag  8 tensor  9 metadata
    metadata         1 plugin_data (repeated: 1 name, 2 content): "mode_step", "mode"
    tensor           1 dtype  2 shape  4 bytes  8 strings
    shape            2 dim (repeated: 1 size)
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.trial.protobuf import Value, block, fields, number, signed, text
from trainwarden.wire.fields import malformed

Array = npt.NDArray[Any]

_DTYPES = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "u1",
    5: "<i2",
    6: "i1",
    8: "<c8",
    9: "<i8",
    10: "?",
    17: "<u2",
    18: "<c16",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
_STRINGS = frozenset({0, 7})  # left out, or TensorFlow's own number
_MAX_DIMENSIONS = 64
_DOUBLE = 8


class Event(NamedTuple):
    """A value with its name.

    Attributes:
        tag: Name of the tensor, or of one of its reductions.
        value: Any shape; text is an array of ``str``.
        step: Global step.
        time: Seconds since the epoch, UTC; 0 if it was not written.
    """

    tag: str
    value: Array
    step: int
    time: float


def decode(payload: memoryview, where: str) -> Event:
    """Read one event.

    Raises:
        MalformedObjectError: no event with one value, a dtype nobody knows, a shape that does not
            fit the bytes.
    """
    step, time, summaries = 0, 0.0, list[memoryview]()
    for field, value in fields(payload, where):
        if field == 1:
            time = _double(value, where)
        elif field == 2:  # noqa: PLR2004 - field numbers, as listed above
            step = signed(number(value, where))
        elif field == 5:  # noqa: PLR2004 - same
            summaries.append(block(value, where))
    values = [
        block(value, where)
        for one in summaries
        for field, value in fields(one, where)
        if field == 1
    ]
    if len(values) != 1:
        raise malformed(f"one value in {where}", str(len(values)))
    tag, found = "", None
    for field, value in fields(values[0], where):
        if field == 1:
            tag = text(value, where)
        elif field == 8:  # noqa: PLR2004 - same
            found = _tensor(block(value, where), where)
    if found is None or not tag:
        raise malformed(f"a named tensor in {where}", repr(tag))
    return Event(tag, found, step, time)


def _double(value: Value, where: str) -> float:
    raw = block(value, where)
    if len(raw) != _DOUBLE:
        raise malformed(f"a time of 8 bytes in {where}", f"{len(raw)} bytes")
    seconds = float(struct.unpack("<d", raw)[0])
    return seconds if math.isfinite(seconds) else 0.0


def _tensor(body: memoryview, where: str) -> Array:
    kind, shape, content, strings = 0, list[int](), memoryview(b""), list[str]()
    for field, value in fields(body, where):
        if field == 1:
            kind = number(value, where)
        elif field == 2:  # noqa: PLR2004 - field numbers, as listed above
            shape = _shape(block(value, where), where)
        elif field == 4:  # noqa: PLR2004 - same
            content = block(value, where)
        elif field == 8:  # noqa: PLR2004 - same
            strings.append(text(value, where))
    return _array(kind, shape, content, strings, where)


def _array(
    kind: int, shape: list[int], content: memoryview, strings: list[str], where: str
) -> Array:
    count = math.prod(shape)
    if kind in _STRINGS:
        if count != len(strings):
            raise malformed(f"{count} strings in {where}", str(len(strings)))
        return np.array(strings, dtype=np.str_).reshape(shape)
    if kind not in _DTYPES:
        raise malformed(f"a dtype of {sorted(_DTYPES)} in {where}", str(kind))
    dtype = np.dtype(_DTYPES[kind])
    if count * dtype.itemsize != len(content):
        expected = f"{count} x {dtype.itemsize} bytes for shape {shape} in {where}"
        raise malformed(expected, f"{len(content)} bytes")
    if dtype == np.bool_ and any(byte > 1 for byte in content):
        raise malformed(f"booleans of 0 and 1 in {where}", "another byte")
    return np.frombuffer(content, dtype).reshape(shape)


def _shape(body: memoryview, where: str) -> list[int]:
    shape: list[int] = []
    for field, value in fields(body, where):
        if field != 2:  # noqa: PLR2004 - field numbers, as listed above
            continue
        size = 0
        for inner, number_of in fields(block(value, where), where):
            if inner == 1:
                size = signed(number(number_of, where))
        if size < 0 or len(shape) >= _MAX_DIMENSIONS:
            raise malformed(f"at most {_MAX_DIMENSIONS} sizes from 0 in {where}", str(size))
        shape.append(size)
    return shape
