"""safetensors, read and written with numpy and every length checked before it is believed.

Layout: 8 bytes little-endian header length, the header (JSON), then the tensors' bytes. The header
maps names to ``{"dtype", "shape", "data_offsets"}`` and ``__metadata__`` to strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.model import Json
from trainwarden.wire.fields import MAX_INT, dump_json, malformed, parse_json

MAX_HEADER_BYTES = 1024 * 1024
MAX_ENTRIES = 100_000
MAX_DIMENSIONS = 64
_METADATA = "__metadata__"
_LENGTH_BYTES = 8
_ALIGNMENT = 8

# safetensors' code -> numpy's view. bfloat16 and float8 have no numpy type: they come as raw words.
DTYPES: Mapping[str, np.dtype[np.generic]] = {
    code: np.dtype(name)
    for code, name in {
        "F64": "<f8",
        "I64": "<i8",
        "U64": "<u8",
        "C64": "<c8",
        "F32": "<f4",
        "I32": "<i4",
        "U32": "<u4",
        "F16": "<f2",
        "I16": "<i2",
        "U16": "<u2",  # before BF16, so that ``entry`` finds it first
        "BF16": "<u2",
        "I8": "i1",
        "U8": "u1",  # before F8, same
        "F8_E4M3": "u1",
        "F8_E5M2": "u1",
        "BOOL": "?",
    }.items()
}


class Entry(NamedTuple):
    """One tensor: safetensors' dtype code, shape, and its bytes in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def array(self) -> npt.NDArray[np.generic]:
        """Return a read-only view; BF16 as uint16, F8 as uint8."""
        return np.frombuffer(self.data, DTYPES[self.dtype]).reshape(self.shape)


class Container(NamedTuple):
    """What a safetensors file holds."""

    metadata: Mapping[str, str]
    tensors: Mapping[str, Entry]


def entry(array: npt.NDArray[np.generic], dtype: str = "") -> Entry:
    """Make an entry of an array; ``dtype`` is needed where numpy has no type of its own (BF16).

    Raises:
        MalformedObjectError: safetensors has no such type.
    """
    wanted = array.dtype.newbyteorder("<")
    code = dtype or next((c for c, known in DTYPES.items() if known == wanted), "")
    if code not in DTYPES or DTYPES[code].itemsize != array.dtype.itemsize:
        raise malformed("a dtype that safetensors knows", f"{array.dtype} as {code or 'none'}")
    plain = np.ascontiguousarray(array, wanted)
    return Entry(code, array.shape, plain.reshape(-1).view(np.uint8).data)


def pack(tensors: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    """Write a safetensors file; equal input gives equal bytes.

    Tensors lie in the order the reference implementation prefers: widest type first, then by name.

    Raises:
        MalformedObjectError: header over ``MAX_HEADER_BYTES``.
    """
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name].dtype].itemsize, name))
    header: dict[str, Json] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name in order:
        code, shape, data = tensors[name]
        header[name] = {
            "dtype": code,
            "shape": list(shape),
            "data_offsets": [offset, offset + data.nbytes],
        }
        offset += data.nbytes
    text = dump_json(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise malformed(f"a header of at most {MAX_HEADER_BYTES} bytes", str(len(text)))
    length = len(text).to_bytes(_LENGTH_BYTES, "little")
    return b"".join((length, text, *(tensors[name].data for name in order)))


def unpack(body: bytes) -> Container:
    """Read a safetensors file without copying its tensors.

    Raises:
        MalformedObjectError: truncated, trailing or overlapping bytes, gaps, a header too long or
            no strict JSON, unknown types, shapes that do not fit their bytes.
    """
    if len(body) < _LENGTH_BYTES:
        raise malformed("a safetensors file", f"{len(body)} bytes")
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES or length > len(body) - _LENGTH_BYTES:
        raise malformed(
            f"a header within the file and of at most {MAX_HEADER_BYTES} bytes", str(length)
        )
    view = memoryview(body)
    if body[_LENGTH_BYTES : _LENGTH_BYTES + 1] != b"{":
        raise malformed(
            "a header that starts with {", repr(body[_LENGTH_BYTES : _LENGTH_BYTES + 1])
        )
    header = parse_json(view[_LENGTH_BYTES : _LENGTH_BYTES + length], "header")
    metadata = _metadata(header.pop(_METADATA, {}))
    if len(header) > MAX_ENTRIES:
        raise malformed(f"at most {MAX_ENTRIES} tensors", str(len(header)))
    data = view[_LENGTH_BYTES + length :]
    return Container(metadata, _entries(header, data))


def _metadata(found: Json) -> Mapping[str, str]:
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return found
    raise malformed("metadata that maps strings to strings", repr(found))


def _entries(header: Mapping[str, Json], data: memoryview) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    spans: list[tuple[int, int]] = []
    for name, fields in header.items():
        code, shape, begin, end = _described(name, fields)
        if end > data.nbytes or end - begin != _size(code, shape):
            raise malformed(
                f"tensor {name!r} of {_size(code, shape)} bytes inside the file",
                f"bytes {begin} to {end} of {data.nbytes}",
            )
        spans.append((begin, end))
        found[name] = Entry(code, shape, data[begin:end])
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise malformed(f"the next tensor at byte {position}", f"at byte {begin}")
        position = end
    if position != data.nbytes:
        raise malformed(f"a file that ends at byte {position} of its data", str(data.nbytes))
    return found


def _described(name: str, fields: Json) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise malformed(f"tensor {name!r} with dtype, shape and data_offsets", repr(fields))
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise malformed(f"tensor {name!r} of a known dtype", repr(code))
    if not _counts(shape, MAX_DIMENSIONS):
        raise malformed(f"tensor {name!r} with a shape of counts", repr(shape))
    if not _counts(offsets, 2) or len(offsets) != 2 or offsets[0] > offsets[1]:  # noqa: PLR2004 - begin, end
        raise malformed(f"tensor {name!r} with ascending offsets", repr(offsets))
    return code, tuple(shape), offsets[0], offsets[1]


def _counts(found: Json, max_items: int) -> bool:
    return (
        isinstance(found, list)
        and len(found) <= max_items
        and all(type(item) is int and 0 <= item <= MAX_INT for item in found)
    )


def _size(code: str, shape: tuple[int, ...]) -> int:
    size = DTYPES[code].itemsize
    for count in shape:
        size *= count  # Python integers: no overflow to hide behind
    return size
