"""How the bytes of each dtype become numbers: exactly, in float32 where that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from trainwarden.errors import BadInputError

Array = npt.NDArray[Any]
Widen = Callable[[Array, Array], None]  # (raw block, wide scratch of equal size)


@dataclass(frozen=True)
class Kind:
    """One dtype.

    Attributes:
        name: As in ``TensorInfo.dtype``.
        storage: numpy type of the array that is passed in; raw words where numpy has no own.
        parts: numpy type of its real parts; differs from ``storage`` for complex and bool.
        wide: float32 if that holds every value exactly, else float64.
        tiny: Smallest normal number; below it, non-zero elements are subnormal. 0 for integers.
        widen: Fills scratch with numbers; None if the array can be used as it is.
    """

    name: str
    storage: np.dtype[Any]
    parts: np.dtype[Any]
    wide: np.dtype[Any]
    tiny: float = 0.0
    widen: Widen | None = None


def _copy(raw: Array, wide: Array) -> None:
    np.copyto(wide, raw, casting="unsafe")


def _bfloat16(raw: Array, wide: Array) -> None:
    # bfloat16 is the upper half of float32
    bits = wide.view(np.uint32)
    np.copyto(bits, raw)
    np.left_shift(bits, 16, out=bits)


def _float8(exponent_bits: int, *, infinities: bool) -> Widen:
    """Widen through the 256 values of an 8-bit float, sign in the highest bit."""
    mantissa_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    values = []
    for code in range(128):
        exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
        fraction = mantissa / 2**mantissa_bits
        if infinities and exponent == 2**exponent_bits - 1:
            values.append(np.inf if mantissa == 0 else np.nan)
        elif code == 127 and not infinities:  # noqa: PLR2004 - all ones is e4m3fn's only NaN
            values.append(np.nan)
        elif exponent == 0:
            values.append(fraction * 2.0 ** (1 - bias))
        else:
            values.append((1 + fraction) * 2.0 ** (exponent - bias))
    table = np.array([*values, *(-value for value in values)], dtype=np.float32)

    def widen(raw: Array, wide: Array) -> None:
        np.take(table, raw, out=wide, mode="clip")  # 256 values for 256 codes: nothing to clip

    return widen


def _kinds() -> Mapping[str, Kind]:
    single, double = np.dtype(np.float32), np.dtype(np.float64)

    def plain(name: str, parts: str, wide: np.dtype[Any], tiny: float = 0.0) -> Kind:
        part = np.dtype(parts)
        return Kind(name, np.dtype(name), part, wide, tiny, None if part == wide else _copy)

    def words(name: str, parts: str, tiny: float, widen: Widen) -> Kind:
        return Kind(name, np.dtype(parts), np.dtype(parts), single, tiny, widen)

    kinds = [
        plain("float32", "f4", single, 2.0**-126),
        plain("float64", "f8", double, 2.0**-1022),
        plain("float16", "f2", single, 2.0**-14),
        words("bfloat16", "u2", 2.0**-126, _bfloat16),
        words("float8_e4m3fn", "u1", 2.0**-6, _float8(4, infinities=False)),
        words("float8_e5m2", "u1", 2.0**-14, _float8(5, infinities=True)),
        plain("complex64", "f4", single, 2.0**-126),
        plain("complex128", "f8", double, 2.0**-1022),
        plain("bool", "u1", single),
        *(plain(name, name, single) for name in ("int8", "uint8")),
        *(plain(name, name, double) for name in ("int16", "uint16", "int32", "uint32")),
        *(plain(name, name, double) for name in ("int64", "uint64")),
    ]
    return {kind.name: kind for kind in kinds}


KINDS = _kinds()
_SIGNED_WORDS = {"bfloat16": np.dtype(np.int16)}  # torch views bfloat16 as int16 as readily
# Compare with a dtype only: numpy takes None for float64.


def kind_of(dtype: str) -> Kind:
    """Return what is known of a dtype.

    Raises:
        BadInputError: a dtype nobody here knows.
    """
    found = KINDS.get(dtype)
    if found is None:
        raise BadInputError(f"a dtype of {', '.join(KINDS)}", repr(dtype))
    return found


def parts(x: Array, kind: Kind) -> Array:
    """Return ``x`` with its real parts as elements; a complex number counts twice.

    Raises:
        BadInputError: the array's type is not the one that stores ``kind``.
    """
    if x.dtype == kind.parts:
        return x
    if x.dtype not in (kind.storage, _SIGNED_WORDS.get(kind.name, kind.storage)):
        raise BadInputError(f"a {kind.storage} array for {kind.name}", str(x.dtype))
    if kind.parts.itemsize != x.dtype.itemsize:
        x = np.ascontiguousarray(x)  # complex: parts can only be told apart side by side
    return cast("Array", x.view(kind.parts))
