"""The container is safetensors, and nothing else passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from safetensors import SafetensorError

from trainwarden.errors import MalformedObjectError
from trainwarden.wire.container import MAX_HEADER_BYTES, Entry, entry, pack, unpack

Header = dict[str, Any]
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.arange(3, dtype=np.uint8),
    "ü": np.array([[1.5, np.nan]]),
    "leer": np.empty((0, 4), np.int64),
    "zahl": np.array(7, np.int32),
    "ja": np.array([True, False]),
    "halb": np.array([1.5], np.float16),
    "komplex": np.array([1 + 2j], np.complex64),
}


def raw(header: Header | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_the_reference_library_reads_what_we_write() -> None:
    body = pack({name: entry(array) for name, array in ARRAYS.items()}, {"trainwarden": "{}"})
    found = safetensors.numpy.load(body)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_we_read_what_the_reference_library_writes() -> None:
    body = safetensors.numpy.save(ARRAYS, {"k": "v"})
    found = unpack(body)
    assert found.metadata == {"k": "v"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found.tensors[name].array(), array)
        assert found.tensors[name].shape == array.shape


def test_bfloat16_and_float8_travel_as_raw_words() -> None:
    numbers = np.array([1.5, -2.0, 0.1])
    words = numbers.astype(ml_dtypes.bfloat16).view(np.uint16)
    eighths = numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    body = pack({"w": entry(words, "BF16"), "q": entry(eighths, "F8_E4M3")}, {})
    found = unpack(body).tensors
    assert (found["w"].dtype, found["q"].dtype) == ("BF16", "F8_E4M3")
    np.testing.assert_array_equal(found["w"].array(), words)
    np.testing.assert_array_equal(found["q"].array(), eighths)


def test_tensors_are_aligned_and_order_does_not_change_a_byte() -> None:
    forward = pack({name: entry(ARRAYS[name]) for name in ARRAYS}, {"x": "1", "y": "2"})
    backward = pack({name: entry(ARRAYS[name]) for name in reversed(ARRAYS)}, {"y": "2", "x": "1"})
    assert forward == backward
    assert int.from_bytes(forward[:8], "little") % 8 == 0


def test_arrays_of_any_memory_order_are_written_row_by_row() -> None:
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    body = pack({"t": entry(x.T), "big": entry(x.astype(">i2")), "cut": entry(x[:, ::2])}, {})
    found = unpack(body).tensors
    np.testing.assert_array_equal(found["t"].array(), x.T)
    np.testing.assert_array_equal(found["big"].array(), x)
    np.testing.assert_array_equal(found["cut"].array(), x[:, ::2])


def test_what_is_read_cannot_be_written() -> None:
    array = unpack(pack({"a": entry(np.ones(2))}, {})).tensors["a"].array()
    assert not array.flags.writeable


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1.0], np.longdouble)])
def test_types_that_safetensors_lacks_are_refused(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(MalformedObjectError, match="a dtype that safetensors knows"):
        entry(array)


def test_a_header_beyond_the_limit_is_not_written() -> None:
    with pytest.raises(MalformedObjectError, match="a header of at most"):
        pack({}, {"x": "y" * MAX_HEADER_BYTES})


def tensor(begin: int, end: int, shape: Any = None, dtype: Any = "U8") -> Header:
    size = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": size, "data_offsets": [begin, end]}


MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "a safetensors file"),
    "seven bytes": (b"1234567", "a safetensors file"),
    "header longer than the file": (raw(b"{}")[:8] + b"{", "a header within the file"),
    "header bomb": (
        (2**62).to_bytes(8, "little") + b"{}",
        "a header within the file",
    ),
    "header over the limit": (raw(b"{" + b" " * MAX_HEADER_BYTES + b"}"), "a header within"),
    "no object": (raw(b"[]"), "a header that starts with"),
    "no header": (raw(b""), "a header that starts with"),
    "no JSON": (raw(b"{nothing}"), "strict JSON"),
    "no UTF-8": (raw(b'{"\xff": 1}'), "strict JSON"),
    "NaN": (raw(b'{"a": NaN}'), "finite numbers"),
    "infinite digits": (raw(b'{"a": 1e999}'), "finite numbers"),
    "endless integer": (raw(b'{"a": ' + b"9" * 100_000 + b"}"), "integers of at most"),
    "deep": (raw(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "strict JSON|nested"),
    "half a surrogate": (raw(b'{"__metadata__": {"a": "\\ud800"}}'), "strict JSON"),
    "duplicate tensor": (
        raw(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}'),
        "unique keys",
    ),
    "metadata of numbers": (raw({"__metadata__": {"a": 1}}), "metadata that maps"),
    "metadata list": (raw({"__metadata__": []}), "metadata that maps"),
    "no fields": (raw({"a": 1}), "with dtype, shape and data_offsets"),
    "extra field": (raw({"a": {**tensor(0, 0), "x": 1}}), "with dtype, shape and data_offsets"),
    "unknown dtype": (raw({"a": tensor(0, 1, dtype="U9")}, b"1"), "of a known dtype"),
    "dtype list": (raw({"a": tensor(0, 1, dtype=["U8"])}, b"1"), "of a known dtype"),
    "negative size": (raw({"a": tensor(0, 1, [-1])}, b"1"), "a shape of counts"),
    "fractional size": (raw({"a": tensor(0, 1, [1.0])}, b"1"), "a shape of counts"),
    "boolean size": (raw({"a": tensor(0, 1, [True])}, b"1"), "a shape of counts"),
    "many dimensions": (raw({"a": tensor(0, 1, [1] * 65)}, b"1"), "a shape of counts"),
    "absurd size": (raw({"a": tensor(0, 1, [2**53] * 60)}, b"1"), "inside the file"),
    "offsets reversed": (raw({"a": tensor(1, 0, [1])}, b"1"), "ascending offsets"),
    "three offsets": (
        raw({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 1]}}, b"1"),
        "ascending offsets",
    ),
    "beyond the end": (raw({"a": tensor(0, 2)}, b"1"), "inside the file"),
    "wrong shape": (raw({"a": tensor(0, 2, [3])}, b"12"), "inside the file"),
    "overlap": (raw({"a": tensor(0, 2), "b": tensor(1, 3)}, b"123"), "the next tensor at"),
    "same bytes twice": (raw({"a": tensor(0, 2), "b": tensor(0, 2)}, b"12"), "the next tensor at"),
    "gap": (raw({"a": tensor(0, 1), "b": tensor(2, 3)}, b"123"), "the next tensor at"),
    "gap at the start": (raw({"a": tensor(1, 2)}, b"12"), "the next tensor at"),
    "trailing bytes": (raw({"a": tensor(0, 1)}, b"12"), "a file that ends at"),
    "only trailing bytes": (raw({}, b"1"), "a file that ends at"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_by_its_fault(name: str) -> None:
    body, message = MALFORMED[name]
    with pytest.raises(MalformedObjectError, match=message):
        unpack(body)


def test_whatever_the_reference_library_refuses_we_refuse() -> None:
    accepts = {"duplicate tensor", "extra field", "header over the limit"}
    for name, (body, _) in MALFORMED.items():
        load: Callable[[bytes], object] = safetensors.numpy.load
        try:
            load(body)
        except (SafetensorError, KeyError, ValueError, TypeError):
            with pytest.raises(MalformedObjectError):
                unpack(body)
        else:
            assert name in accepts, name


def test_an_entry_gives_its_bytes_without_a_copy() -> None:
    body = pack({"a": entry(np.arange(4, dtype=np.uint8))}, {})
    found: Entry = unpack(body).tensors["a"]
    assert found.data.obj is body
