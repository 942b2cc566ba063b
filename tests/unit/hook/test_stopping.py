"""A stop that somebody asks for is carried out once, at the end of a step, where it may be."""

from __future__ import annotations

import logging

import pytest

from trainwarden.hook.stopping import Stopping, StopTraining


def asked(*, allowed: bool = True, alone: bool = True) -> tuple[Stopping, list[str], list[str]]:
    stopping = Stopping(allowed=allowed, alone=alone)
    told: list[str] = []
    stopping.on_stop = told.append
    stopping.ask("it diverged")
    return stopping, told, []


def test_a_loop_that_may_be_stopped_is_told_closed_and_ended() -> None:
    stopping, told, closed = asked()
    with pytest.raises(StopTraining, match="it diverged") as caught:
        stopping.act(closed.append)
    assert (told, closed, caught.value.code) == (["it diverged"], ["stopped"], 0)


def test_one_that_may_not_is_told_only_and_once() -> None:
    stopping, told, closed = asked(allowed=False)
    for _ in range(3):
        stopping.act(closed.append)
    assert (told, closed) == (["it diverged"], [])


def test_one_of_several_processes_is_told_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "trainwarden"):
        stopping, told, closed = asked(alone=False)
    stopping.act(closed.append)
    assert (told, closed) == (["it diverged"], [])
    assert "several processes" in caplog.text


def test_a_framework_s_callback_ends_the_loop_itself(caplog: pytest.LogCaptureFixture) -> None:
    for allowed, alone in ((True, True), (False, True), (True, False)):
        stopping = Stopping(allowed=allowed, alone=alone)
        stopping.by_caller = True
        with caplog.at_level(logging.WARNING, "trainwarden"):
            stopping.ask("it diverged")
        stopping.act(pytest.fail)
    assert caplog.text.count("it ends after this step") == 3
    assert "look at stop_requested" not in caplog.text
    assert "several processes" not in caplog.text


def test_nothing_happens_unless_somebody_asks() -> None:
    stopping = Stopping(allowed=True, alone=True)
    stopping.act(pytest.fail)
    assert stopping.reason is None


def test_a_checkpoint_that_fails_is_said_and_the_loop_ends_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopping, _, closed = asked()
    stopping.on_stop = lambda _: 1 / 0
    with caplog.at_level(logging.WARNING, "trainwarden"), pytest.raises(StopTraining):
        stopping.act(closed.append)
    assert "on_stop failed: ZeroDivisionError" in caplog.text
    assert closed == ["stopped"]


def test_the_first_reason_stands() -> None:
    stopping, told, _ = asked(allowed=False)
    stopping.ask("another")
    stopping.act(pytest.fail)
    assert told == ["it diverged"]


def test_a_loop_that_catches_every_exception_ends_too() -> None:
    assert not issubclass(StopTraining, Exception)
