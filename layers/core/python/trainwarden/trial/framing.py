"""TFRecord framing as SageMaker Debugger writes it.

A record is ``uint64le length | uint32le masked CRC-32C of these 8 bytes | payload | uint32le``. The
last word is the masked CRC of the ten characters ``0x12345678`` instead of the payload's: their
writer skips the cost. A real CRC of the payload is taken as well, anything else refused.
"""

from __future__ import annotations

import struct

from trainwarden.wire.fields import malformed

HEADER, FOOTER = 12, 4
_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
_MASK = 0xA282EAD8
_WORD = 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE = _table()


def masked_crc(body: bytes | memoryview) -> int:
    """Return TensorFlow's masked CRC-32C."""
    crc = _WORD
    for byte in body:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= _WORD
    return (((crc >> 15) | (crc << 17)) + _MASK) & _WORD


CONSTANT_FOOTER = masked_crc(b"0x12345678")


def payload(body: memoryview, start: int, length: int, where: str) -> memoryview:
    """Return the payload of the record at ``start``, of ``length`` bytes with its framing.

    Raises:
        MalformedObjectError: it lies outside the file, its length is another, a CRC is wrong.
    """
    if start < 0 or length < HEADER + FOOTER or start + length > len(body):
        raise malformed(f"a record within the {len(body)} bytes of {where}", f"{start}+{length}")
    size, crc = struct.unpack_from("<QI", body, start)
    if crc != masked_crc(body[start : start + 8]):
        raise malformed(f"a record at byte {start} of {where} with the CRC of its length", hex(crc))
    if size != length - HEADER - FOOTER:
        expected = f"a payload of {length - HEADER - FOOTER} bytes at byte {start} of {where}"
        raise malformed(expected, str(size))
    found = body[start + HEADER : start + HEADER + size]
    (footer,) = struct.unpack_from("<I", body, start + HEADER + size)
    if footer != CONSTANT_FOOTER and footer != masked_crc(found):
        raise malformed(f"a footer that fits the record at byte {start} of {where}", hex(footer))
    return found
