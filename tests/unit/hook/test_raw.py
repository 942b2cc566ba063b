"""Tensors that are saved as they are: which, how many, and what happens if they cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from tests.unit.hook.recording import LAZY, read
from tests.unit.hook.test_uploader import observation, start
from trainwarden.errors import BadInputError, RetryableError, TrainwardenError
from trainwarden.hook.raw import RawStep, RawWaiting, suspects
from trainwarden.hook.rows import Rows
from trainwarden.hook.uploader import Limits
from trainwarden.model import TensorInfo
from trainwarden.stats.reductions import Tensor
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.container import unpack
from trainwarden.wire.keys import tensors_key

LAYERS = (
    TensorInfo("fc1.weight", "weights", module="fc1"),
    TensorInfo("gradient/fc1.weight", "gradients", module="fc1"),
    TensorInfo("fc1.bias", "biases", module="fc1"),
    TensorInfo("fc2.weight", "weights", module="fc2"),
    TensorInfo("input/0", "inputs"),
)
ONES = np.ones((2, 3), np.float32)


def say(message: str, *, kind: str = "") -> None:
    raise AssertionError(message + kind)


def rows() -> Rows:
    found = Rows(say)
    for info in LAYERS:
        found.row(info)
    return found


def step(*names: str, room: int = 2**20) -> RawStep:
    known = rows()
    wanted = suspects(known, set(names).__contains__)
    return RawStep(7, known, wanted, room=room)


def add_all(raw: RawStep, x: Any = ONES, dtype: str = "float32") -> None:
    raw.add(range(len(LAYERS)), [Tensor(x, dtype)] * len(LAYERS))


def test_the_whole_layer_of_a_suspect_is_kept_and_no_other() -> None:
    raw = step("gradient/fc1.weight")
    add_all(raw)
    assert set(raw.entries) == {"fc1.weight", "gradient/fc1.weight", "fc1.bias"}
    assert raw.size == 3 * ONES.nbytes


def test_of_a_batch_nothing_is_kept_even_if_it_is_named() -> None:
    raw = step("input/0", "fc2.weight")
    add_all(raw)
    assert set(raw.entries) == {"fc2.weight"}


def test_what_is_kept_is_a_copy_that_other_tools_read() -> None:
    raw, live = step("fc2.weight"), np.arange(6, dtype=np.float32).reshape(2, 3).T
    raw.add([3], [Tensor(live, "float32")])
    before = live.copy()
    live[:] = -1
    assert np.array_equal(load(raw.to_bytes({"job": "j"}))["fc2.weight"], before)
    assert unpack(raw.to_bytes({"job": "j"})).metadata == {"job": "j", "step": "7"}


@pytest.mark.parametrize(
    ("dtype", "storage", "code"),
    [
        ("bfloat16", np.uint16, "BF16"),
        ("float8_e4m3fn", np.uint8, "F8_E4M3"),
        ("float8_e5m2", np.uint8, "F8_E5M2"),
        ("float16", np.float16, "F16"),
        ("int64", np.int64, "I64"),
        ("bool", np.bool_, "BOOL"),
    ],
)
def test_every_type_stays_what_it_is(dtype: str, storage: Any, code: str) -> None:
    raw = step("fc2.weight")
    raw.add([3], [Tensor(np.ones(4, storage), dtype)])
    assert raw.entries["fc2.weight"].dtype == code


def test_what_has_no_room_or_no_type_in_safetensors_is_left_out_and_counted() -> None:
    raw = step("fc1.weight", room=2 * ONES.nbytes)
    add_all(raw)
    assert (len(raw.entries), raw.left_out) == (2, 1)
    raw = step("fc2.weight")
    raw.add([3, -1], [Tensor(np.ones(4, np.uint8), "float8_e4m3fnuz"), Tensor(ONES, "float32")])
    assert (raw.entries, raw.left_out) == ({}, 1)


class _Refusing(MemoryObjects):
    """A bucket that does not take raw tensors, or not at once."""

    def __init__(self, *errors: TrainwardenError) -> None:
        super().__init__()
        self.errors = list(errors)

    def put(self, key: str, body: bytes) -> None:
        if "/tensors/" in key and self.errors:
            raise self.errors.pop(0)
        super().put(key, body)


def uploaded(store: MemoryObjects, *, limits: Limits = LAZY) -> list[str]:
    """Upload a step with tensors beside it; what was said."""
    said: list[str] = []
    uploader = start(store, limits, said)
    raw = step("fc1.weight")
    add_all(raw)
    uploader.submit(observation(7))
    assert uploader.keep(raw)
    assert uploader.close("finished", 30)
    return said


def test_they_lie_beside_the_steps_before_the_end_object_does() -> None:
    store = MemoryObjects()
    assert uploaded(store) == []
    body = store.get(tensors_key("job", 7, 0), max_bytes=10**6)
    assert body is not None
    assert unpack(body).metadata == {"job": "job", "run": "run-1", "step": "7", "worker": "0"}
    assert read(store).steps == [7]


def test_they_are_tried_again_when_the_network_is_gone() -> None:
    store = _Refusing(RetryableError("gone"), RetryableError("gone"))
    uploaded(store, limits=Limits(retry_s=0.001, max_retry_s=0.002))
    assert store.get(tensors_key("job", 7, 0), max_bytes=10**6)


def test_if_they_are_refused_that_is_said_and_statistics_go_on() -> None:
    store = _Refusing(BadInputError("to write", "AccessDenied"))
    (said,) = uploaded(store)
    assert "AccessDenied" in said
    found = read(store)
    assert found.steps == [7]
    assert found.end is not None
    assert found.end.counters["raw_tensors"] == 3


def test_what_waits_is_bounded() -> None:
    waiting, raw = RawWaiting(10 * ONES.nbytes), step("fc1.weight")
    add_all(raw)
    for left in (7, 4, 1, 0):  # what comes in was begun with the room of before
        waiting.push(raw)
        assert waiting.room == left * ONES.nbytes
    for _ in range(4):
        assert waiting.first is raw
        waiting.done()
    assert (waiting.room, waiting.first, bool(waiting)) == (10 * ONES.nbytes, None, False)
