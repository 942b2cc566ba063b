"""The reader on the page of the wire format reads what we write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainwarden.model import Layout, Mode, Observation, TensorInfo
from trainwarden.stats.histogram import OCTAVES, SIDE
from trainwarden.stats.reductions import row
from trainwarden.wire import codec, container, fields, tables
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.control import Control
from trainwarden.wire.manifest import MAX_TENSORS, End, Manifest, layout_hash

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_reader_on_the_page_reads_a_table(tmp_path: Path) -> None:
    layout = Layout(tuple(TensorInfo(f"t{i}", "weights") for i in range(5)))
    rng = np.random.default_rng(0)
    stats = [
        np.stack([row(rng.normal(size=40).astype(np.float32), dtype="float32") for _ in range(5)])
        for _ in range(4)
    ]
    stats[1][3] = np.nan
    steps = tuple(Observation(i, Mode.TRAIN, i, 0.0, layout, s) for i, s in enumerate(stats))
    path = tmp_path / "0.tw"
    path.write_bytes(encode(StepsObject("job", 0, 0, "run", steps)))
    namespace: dict[str, Any] = {}
    exec(blocks("python")[0], namespace)  # noqa: S102 - our own page
    read: Callable[[str], np.ndarray[Any, Any]] = namespace["read_stats"]
    assert read(str(path)).tobytes() == np.stack(stats).tobytes()


def test_the_documents_on_the_page_are_read() -> None:
    manifest, _, end, control = (text.replace("…", "0") for text in blocks("json"))
    found = Manifest.from_bytes(manifest.encode())
    assert found.layout.tensors[0].shape == (128, 784)
    assert End.from_bytes(end.encode()).last_seq == 12
    assert Control.from_bytes(control.encode()).stop is True


def test_the_hash_on_the_page_is_the_hash() -> None:
    import hashlib

    manifest = json.loads(blocks("json")[0])
    text = json.dumps(manifest["tensors"], sort_keys=True, separators=(",", ":"))
    found = Manifest.from_bytes(json.dumps(manifest).encode())
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == layout_hash(found.layout.tensors)


@pytest.mark.parametrize(
    ("phrase", "value", "wanted"),
    [
        ("objects over 8 MiB", codec.MAX_OBJECT_BYTES, 8 * 2**20),
        ("headers over 1 MiB", container.MAX_HEADER_BYTES, 2**20),
        ("tables over 32 MiB", tables.MAX_TABLE_BYTES, 32 * 2**20),
        ("more than 1,000 steps", codec.MAX_STEPS, 1000),
        ("or 50,000 rows", MAX_TENSORS, 50_000),
        ("at most 64 levels deep", fields.MAX_DEPTH, 64),
        ("384 negative ones", SIDE, 384),
        ("from 2⁻⁴⁸ to 2⁴⁸", OCTAVES, 48),
    ],
)
def test_the_limits_on_the_page_are_the_limits(phrase: str, value: int, wanted: int) -> None:
    assert value == wanted
    assert re.search(phrase.replace(" ", r"\s"), PAGE)
