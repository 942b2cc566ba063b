"""Steps that are saved because somebody asked for detail."""

from __future__ import annotations

import pytest

from trainwarden.hook.detail import RAW_STEPS, Detail
from trainwarden.wire.control import MAX_REQUESTS, DetailRequest


def saved(detail: Detail, first: int, last: int) -> list[int]:
    return [step for step in range(first, last) if detail.wants(step)]


def heard(*requests: DetailRequest) -> tuple[Detail, list[str]]:
    told: list[str] = []
    detail = Detail(told.append)
    detail.ask(requests)
    return detail, told


def test_so_many_steps_are_saved_from_the_next_one_on_and_then_none() -> None:
    detail, told = heard(DetailRequest("a", steps=3))
    assert saved(detail, 100, 120) == [100, 101, 102]
    assert told == ["the next 3 steps are saved in detail (a)"]


def test_each_so_many_th_of_them_if_asked() -> None:
    assert saved(heard(DetailRequest("a", steps=10, interval=4))[0], 7, 40) == [7, 11, 15]


def test_a_request_is_honoured_once_however_often_it_is_read() -> None:
    request = DetailRequest("a", steps=2)
    detail, told = heard(request)
    assert saved(detail, 0, 5) == [0, 1]
    detail.ask([request, DetailRequest("b", steps=1)])
    assert saved(detail, 5, 10) == [5]
    assert len(told) == 2


def test_a_run_honours_so_many_and_no_more() -> None:
    detail, _ = heard(*(DetailRequest(str(n), steps=1) for n in range(3 * MAX_REQUESTS)))
    assert detail.wants(0)
    assert detail.facts(0)["request"] == MAX_REQUESTS
    assert saved(detail, 1, 5) == []


def test_requests_may_overlap() -> None:
    detail, _ = heard(DetailRequest("a", steps=3))
    assert detail.wants(0)
    detail.ask([DetailRequest("b", steps=4)])
    assert saved(detail, 1, 10) == [1, 2, 3, 4]


def test_facts_say_for_which_request_and_how_many_steps_are_still_to_come() -> None:
    detail, _ = heard(DetailRequest("a", steps=3, interval=2))
    assert detail.facts(5) == {}
    told = {step: detail.facts(step) for step in range(5, 9) if detail.wants(step)}
    assert told == {
        5: {"request": 1.0, "request_left": 2.0},
        7: {"request": 1.0, "request_left": 0.0},
    }
    assert detail.facts(6) == {}, "saved for another reason"


@pytest.mark.parametrize("raw", [True, False])
def test_suspects_are_saved_as_they_are_in_the_first_steps(*, raw: bool) -> None:
    detail, _ = heard(DetailRequest("a", steps=20, interval=2, tensors=("fc1.*",), raw=raw))
    whole = [step for step in range(20) if detail.wants(step) and detail.suspects(step, "fc1.b")]
    assert whole == ([0, 2, 4][:RAW_STEPS] if raw else [])
    assert not detail.suspects(0, "fc2.b")


def test_nothing_is_asked() -> None:
    assert saved(heard()[0], 0, 50) == []
