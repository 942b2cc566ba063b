"""Changes of the control document: each keeps what the others asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainwarden.errors import BadInputError, ConflictError
from trainwarden.pipeline.control import MAX_CONFLICTS, ask_for_detail, ask_to_stop
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.control import MAX_CONTROL_BYTES, MAX_REQUESTS, Control, DetailRequest
from trainwarden.wire.keys import control_key

KEY = control_key("job")
ONE, TWO = DetailRequest("one", tensors=("fc1.weight",)), DetailRequest("two", steps=5)


def lies_in(store: MemoryObjects) -> Control:
    return Control.from_bytes(store.get(KEY, max_bytes=MAX_CONTROL_BYTES) or b"")


def test_requests_and_a_stop_stand_beside_each_other() -> None:
    store = MemoryObjects()
    ask_for_detail(store, "job", ONE)
    ask_to_stop(store, "job", "NaN")
    assert ask_for_detail(store, "job", TWO) == lies_in(store)
    assert lies_in(store) == Control(3, True, "NaN", (ONE, TWO), stop_version=2)


def test_a_request_of_the_same_id_changes_nothing() -> None:
    store = MemoryObjects()
    ask_for_detail(store, "job", ONE)
    assert ask_for_detail(store, "job", DetailRequest("one", steps=9)).version == 1
    assert lies_in(store).details == (ONE,)


def test_a_run_is_asked_so_often_and_no_more() -> None:
    store = MemoryObjects()
    for number in range(MAX_REQUESTS):
        ask_for_detail(store, "job", DetailRequest(str(number)))
    with pytest.raises(BadInputError, match=f"at most {MAX_REQUESTS} requests"):
        ask_for_detail(store, "job", DetailRequest("more"))
    assert ask_to_stop(store, "job", "NaN").stop, "a stop always finds room"


def test_a_document_that_no_hook_would_read_is_not_written() -> None:
    store, long = MemoryObjects(), tuple(f"{n:02}" + "x" * 1000 for n in range(16))
    for number in range(2):
        ask_for_detail(store, "job", DetailRequest(str(number), tensors=long))
    with pytest.raises(BadInputError, match="name fewer tensors"):
        ask_for_detail(store, "job", DetailRequest("2", tensors=long))
    assert ask_to_stop(store, "job", "ü" * 10**5).stop, "a stop finds room"
    assert len(lies_in(store).details) == 2


class _Racing(MemoryObjects):
    """Another writer changes the document just before each of the next ``times`` writes."""

    def __init__(self, other: Callable[[MemoryObjects], object], times: int = 1) -> None:
        super().__init__()
        self.other, self.times = other, times

    def replace(self, key: str, body: bytes, *, before: bytes | None) -> None:
        if self.times > 0:
            self.times -= 1
            self.other(self)
        super().replace(key, body, before=before)


def test_of_two_writers_at_once_neither_loses_what_it_asked_for() -> None:
    store = _Racing(lambda store: ask_to_stop(store, "job", "NaN"))
    ask_for_detail(store, "job", ONE)
    assert lies_in(store) == Control(2, True, "NaN", (ONE,), stop_version=1)


def test_writers_without_end_are_an_error_that_may_be_tried_again() -> None:
    versions = iter(range(1, 10**6))

    def other(store: MemoryObjects) -> None:
        store.put(KEY, Control(next(versions)).to_bytes())

    store = _Racing(other, times=MAX_CONFLICTS + 1)
    with pytest.raises(ConflictError):
        ask_to_stop(store, "job", "NaN")
