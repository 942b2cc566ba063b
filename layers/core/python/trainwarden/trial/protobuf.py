"""Reads the wire form of protocol buffers: numbered fields, every length checked first."""

from __future__ import annotations

from collections.abc import Iterator

from trainwarden.wire.fields import malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
_SIGN, _RANGE = 1 << 63, 1 << 64

Value = int | memoryview


def fields(body: memoryview, where: str) -> Iterator[tuple[int, Value]]:
    """Yield (field number, value): a number for a varint, else the bytes.

    Raises:
        MalformedObjectError: a field that runs over the end, or of a kind nobody writes any more.
    """
    at = 0
    while at < len(body):
        key, at = _varint(body, at, where)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(body, at, where)
            yield number, value
            continue
        if kind == BYTES:
            size, at = _varint(body, at, where)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise malformed(f"a field of a known kind in {where}", f"kind {kind}")
        if size > len(body) - at:
            raise malformed(f"a field within {where}", f"{size} bytes, {len(body) - at} are left")
        yield number, body[at : at + size]
        at += size


def _varint(body: memoryview, at: int, where: str) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(body[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 127) << (7 * i)
        if byte < 128:  # noqa: PLR2004 - the highest bit says that more follow
            return value % _RANGE, at + i + 1
    raise malformed(f"a whole number that ends within {where}", "one that does not")


def signed(value: int) -> int:
    """Return an int64 that was written as its two's complement."""
    return value - _RANGE if value >= _SIGN else value


def number(value: Value, where: str) -> int:
    """Return a field that must be a number.

    Raises:
        MalformedObjectError: it holds bytes.
    """
    if not isinstance(value, int):
        raise malformed(f"a number in {where}", "bytes")
    return value


def block(value: Value, where: str) -> memoryview:
    """Return a field that must be bytes.

    Raises:
        MalformedObjectError: it holds a number.
    """
    if isinstance(value, int):
        raise malformed(f"bytes in {where}", "a number")
    return value


def text(value: Value, where: str) -> str:
    """Return a field that must be UTF-8.

    Raises:
        MalformedObjectError: it is not.
    """
    try:
        return str(block(value, where), "utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"UTF-8 in {where}", str(error)) from error
