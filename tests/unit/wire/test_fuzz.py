"""Whatever is done to an object, a reader answers with one of its two errors, or with an object."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trainwarden.errors import MalformedObjectError
from trainwarden.model import Layout
from trainwarden.wire.codec import LayoutUnknownError, StepsObject, decode, encode
from trainwarden.wire.container import Entry, pack, unpack
from trainwarden.wire.control import Control, DetailRequest
from trainwarden.wire.keys import StepsKey
from trainwarden.wire.manifest import End, Manifest

Path = tuple[Any, ...]
NASTY: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**53, 2**53 + 1, 2**70, 1.0, -0.5, 1e308, float("nan")),
    *("", "x", "x" * 5000, "\ud800", "\0", [], {}, [None], [[]], [-1], {"a": None}, [["a", "b"]]),
)


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    if isinstance(value, (dict, list)):
        children = value.items() if isinstance(value, dict) else enumerate(value)
        for name, child in children:
            yield from paths(child, (*at, name))


def put(value: Any, at: Path, new: Any) -> Any:
    if not at:
        return new
    found = copy.deepcopy(value)
    parent = found
    for name in at[:-1]:
        parent = parent[name]
    parent[at[-1]] = new
    return found


def remove(value: Any, at: Path) -> Any:
    found = copy.deepcopy(value)
    parent = found
    for name in at[:-1]:
        parent = parent[name]
    del parent[at[-1]]
    return found


def repack(header: Any, tensors: dict[str, Entry]) -> bytes:
    return pack(tensors, {"trainwarden": json.dumps(header)})


def survives(body: bytes, layout: Layout, key: StepsKey) -> bool:
    try:
        decode(body, layout, key=key)
    except (MalformedObjectError, LayoutUnknownError):
        return False
    return True


def test_any_value_in_any_place_of_the_header(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    found = unpack(encode(steps))
    header = json.loads(found.metadata["trainwarden"])
    tensors = dict(found.tensors)
    read = 0
    for at in paths(header):
        for new in NASTY:
            read += survives(repack(put(header, at, new), tensors), layout, key)
        if at:
            read += survives(repack(remove(header, at), tensors), layout, key)
    assert read > 0  # some places take another value, such as a mode_step


def test_any_value_in_any_place_of_the_container(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    body = encode(steps)
    length = int.from_bytes(body[:8], "little")
    header, data = json.loads(body[8 : 8 + length]), body[8 + length :]
    for at in paths(header):
        for new in NASTY:
            text = json.dumps(put(header, at, new)).encode()
            survives(len(text).to_bytes(8, "little") + text + data, layout, key)


def test_any_tensor_replaced_by_any_other(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    found = unpack(encode(steps))
    header, tensors = json.loads(found.metadata["trainwarden"]), dict(found.tensors)
    for name in tensors:
        for other in tensors.values():
            survives(repack(header, {**tensors, name: other}), layout, key)
        without = {n: t for n, t in tensors.items() if n != name}
        survives(repack(header, without), layout, key)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_inserted_and_missing_bytes(
    seed: int, steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    rng = np.random.default_rng(seed)
    body = encode(steps)
    for _ in range(400):
        mutant = bytearray(body)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(mutant)))
            kind = rng.integers(4)
            if kind == 0:
                mutant[at] ^= 1 << int(rng.integers(8))
            elif kind == 1:
                mutant[at:at] = rng.bytes(int(rng.integers(1, 9)))
            elif kind == 2:
                del mutant[at : at + int(rng.integers(1, 9))]
            else:
                mutant[at] = int(rng.choice([0, 0x22, 0x5C, 0x7B, 0x7D, 0xFF]))
        survives(bytes(mutant), layout, key)


def test_an_object_cut_anywhere(steps: StepsObject, layout: Layout, key: StepsKey) -> None:
    body = encode(steps)
    cuts = [*range(64), *range(64, len(body), 97)]
    assert not any(survives(body[:cut], layout, key) for cut in cuts)


def test_compressed_bytes_changed_behind_a_valid_header(
    steps: StepsObject, layout: Layout, key: StepsKey
) -> None:
    found = unpack(encode(steps))
    rng = np.random.default_rng(9)
    for name in ("stats.packed", "channels.index", "channels.active", "labels.index"):
        for _ in range(150):
            data = bytearray(found.tensors[name].data)
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
            mutant = Entry("U8", (len(data),), memoryview(bytes(data)))
            tensors = {**found.tensors, name: mutant}
            survives(pack(tensors, found.metadata), layout, key)


@pytest.mark.parametrize("kind", [Manifest, End, Control])
def test_any_value_in_any_place_of_a_document(
    kind: type[Manifest | End | Control], layout: Layout
) -> None:
    wanted = {
        Manifest: lambda: Manifest("job", "run", layout=layout, rules={"a": [1]}).to_bytes(),
        End: lambda: End("job", 1, "run", 3, counters={"dropped": 2}).to_bytes(),
        Control: lambda: Control(2, reason="why", details=(DetailRequest("a"),)).to_bytes(),
    }[kind]()
    document = json.loads(wanted)
    for at in paths(document):
        for new in NASTY:
            body = json.dumps(put(document, at, new)).encode()
            try:
                kind.from_bytes(body)
            except MalformedObjectError:
                continue
    for cut in range(len(wanted)):
        with pytest.raises(MalformedObjectError):
            kind.from_bytes(wanted[:cut])
