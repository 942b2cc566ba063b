"""One watched run: rows, drafts, the guard, the clock."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from tests.unit.hook.recording import LAZY, QUICK, Crashing, Flaky, read
from trainwarden.errors import BadInputError, TrainwardenError
from trainwarden.hook.config import Place
from trainwarden.hook.options import Options
from trainwarden.hook.schedule import Schedule
from trainwarden.hook.sender import Sender, Sending
from trainwarden.hook.session import Session
from trainwarden.hook.uploader import Limits
from trainwarden.model import Layout, Mode, TensorInfo
from trainwarden.pipeline.control import ask_for_detail, ask_to_stop
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import Control, DetailRequest
from trainwarden.wire.keys import control_key
from trainwarden.wire.manifest import Manifest

TABLE = np.arange(64.0).reshape(2, 32)


def start(store: ObjectStore, options: Options | None = None, limits: Limits = LAZY) -> Session:
    return Session(
        options or Options(),
        Place(job="job", out="", identity="me"),
        framework="none 1",
        environment={"python": "3"},
        store=store,
        limits=limits,
    )


@dataclass
class Idle:
    """Follows no loop."""

    heard: list[str]

    def detach(self) -> None:
        self.heard.append("hooks")

    def settle(self) -> None:
        self.heard.append("settle")

    def finish(self) -> None:
        self.heard.append("finish")


def save(session: Session, step: int) -> None:
    draft = session.draft(step, Mode.TRAIN, step)
    draft.scalar("losses", "loss", float(step))
    session.submit(draft)


def test_rows_are_given_in_order_and_kept() -> None:
    store = MemoryObjects()
    session = start(store)
    rows = [session.row(TensorInfo(name, "weights")) for name in ("a", "b", "a")]
    assert rows == [0, 1, 0]
    draft = session.draft(0, Mode.TRAIN, 0)
    draft.rows(np.array([1, 0]), TABLE)
    session.submit(draft)
    session.close("finished")
    found = read(store).observations[0]
    assert found.layout.names == ("a", "b")
    assert np.array_equal(found.stats, TABLE[::-1])


def test_a_row_that_was_not_filled_is_not_captured() -> None:
    store = MemoryObjects()
    session = start(store)
    for name in ("a", "b", "c"):
        session.row(TensorInfo(name, "weights"))
    draft = session.draft(0, Mode.TRAIN, 0)
    draft.rows(np.array([2]), TABLE[:1])
    session.submit(draft)
    session.close("finished")
    found = read(store).observations[0]
    assert found.captured("weights").tolist() == [2]


def test_the_manifest_says_who_wrote_what_and_how() -> None:
    store = MemoryObjects()
    session = start(store, Options(rules=["Overfit"]))
    save(session, 0)
    session.close("finished")
    manifest = read(store).manifest
    assert (manifest.framework, manifest.identity, manifest.rules) == ("none 1", "me", ["Overfit"])
    assert manifest.environment == {"python": "3"}
    assert manifest.capture["save_interval"] == 10
    assert manifest.workers == (0,)
    assert abs(manifest.created - time.time()) < 60


def test_an_error_is_said_once_switches_capture_off_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, taken_out = MemoryObjects(), list[str]()
    session = start(store)
    adapter = Idle(taken_out)
    session.connect(adapter, taken_out.clear)

    def broken() -> None:
        raise ZeroDivisionError("a bug of ours")

    save(session, 0)
    with caplog.at_level(logging.WARNING, "trainwarden"):
        assert session.guarded(broken) is None
        assert session.guarded(save, session, 1) is None, "switched off"
    assert taken_out == ["hooks"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a bug of ours" in caplog.records[0].message
    session.close("finished")
    found = read(store)
    assert found.steps == [0]
    assert found.dropped == {"errors": 1}


def test_strict_raises_the_error_itself() -> None:
    session = start(MemoryObjects(), Options(strict=True))
    with pytest.raises(ZeroDivisionError):
        session.guarded(lambda: 1 / 0)
    session.close("finished")


def test_ctrl_c_inside_the_hook_ends_the_training() -> None:
    session = start(MemoryObjects())

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.guarded(interrupted)
    session.close("stopped")


def test_strict_says_what_could_not_be_uploaded() -> None:
    store = Flaky([BadInputError("to write", "AccessDenied") for _ in range(100)])
    session = start(store, Options(strict=True), QUICK)
    save(session, 0)
    with pytest.raises(TrainwardenError, match="AccessDenied"):
        session.close("finished")


def test_not_strict_it_warns_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    store = Flaky([BadInputError("to write", "AccessDenied") for _ in range(100)])
    session = start(store, limits=QUICK)
    save(session, 0)
    assert session.close("finished") is False
    assert any("AccessDenied" in record.message for record in caplog.records)


def test_in_a_forked_child_nothing_happens() -> None:
    store = MemoryObjects()
    session = start(store)
    session.pid = os.getpid() + 1  # what a child sees
    assert session.guarded(save, session, 0) is None
    assert session.flush(0) is False
    assert session.close("finished") is False
    session.pid = os.getpid()
    session.close("finished")
    assert read(store).observations == []


def test_time_does_not_follow_a_clock_that_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    session = start(MemoryObjects())
    before = session.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert session.now() >= before
    monkeypatch.undo()
    session.close("finished")


def test_the_cloud_can_ask_the_loop_to_stop() -> None:
    store = MemoryObjects()
    store.put(control_key("job"), Control(version=1, stop=True, reason="loss is NaN").to_bytes())
    session = start(store, limits=QUICK)
    asked, heard = session.stopping.ask, threading.Event()

    def hear(reason: str) -> None:
        asked(reason)
        heard.set()

    session.stopping.ask = hear  # type: ignore[method-assign]
    save(session, 0)
    assert heard.wait(30)
    assert session.stop_requested
    assert session.stopping.reason == "loss is NaN"
    session.close("finished")


def test_the_cloud_can_ask_for_detail(caplog: pytest.LogCaptureFixture) -> None:
    store, asked = MemoryObjects(), DetailRequest("DeadRelu", steps=2)
    store.put(control_key("job"), Control(version=1, details=(asked,)).to_bytes())
    session = start(store, Options(schedule=Schedule(interval=1000, dense=1)), QUICK)
    heard, ask = threading.Event(), session.detail.ask

    def hear(requests: Iterable[DetailRequest]) -> None:
        ask(requests)
        heard.set()

    session.detail.ask = hear  # type: ignore[method-assign]
    save(session, 0)
    assert heard.wait(30)
    assert [step for step in range(1, 9) if session.due(step)] == [1, 2]
    session.close("finished")
    assert "the next 2 steps are saved in detail (DeadRelu)" in caplog.text


def heard(sender: Sender) -> Control:
    found = sender.advice()
    assert found is not None
    return found


def started_again(store: MemoryObjects, *, sagemaker: bool = False) -> Sender:
    """A process that goes on with a run that another one began and was asked to stop."""
    manifest = Manifest("job", "run", identity="me", sagemaker=sagemaker)
    ask_for_detail(store, "job", DetailRequest("early"))
    ask_to_stop(store, "job", "NaN")
    first, again = Sender(store, manifest, 0), Sender(store, manifest, 0)
    assert not first.resume(continues=True)
    told = heard(first)
    assert (told.stop, [one.id for one in told.details]) == (True, ["early"])
    first.send(Sending(0, b"", Layout()))
    assert again.resume(continues=True)
    return again


def test_a_process_that_continues_a_run_is_not_asked_what_the_one_before_it_was() -> None:
    store = MemoryObjects()
    again = started_again(store)
    assert (heard(again).stop, again.advice()) == (False, None)
    ask_for_detail(store, "job", DetailRequest("late"))
    told = heard(again)
    assert (told.stop, [one.id for one in told.details]) == (False, ["late"])
    ask_to_stop(store, "job", "NaN")
    assert heard(again).stop, "asked again, if for the same reason"


def test_a_job_that_sagemaker_starts_again_stops_all_the_same() -> None:
    told = heard(started_again(MemoryObjects(), sagemaker=True))
    assert (told.stop, told.details) == (True, ())


def test_closing_twice_is_closing_once() -> None:
    store = MemoryObjects()
    session = start(store)
    save(session, 0)
    assert session.close("failed")
    session.close("finished")
    end = read(store).end
    assert end is not None
    assert end.reason == "failed"


def test_tables_of_a_draft_that_is_never_submitted_are_put_together() -> None:
    store = MemoryObjects()
    session = start(store)
    rows = [session.row(TensorInfo(name, "custom")) for name in ("a", "b")]
    draft = session.draft(0, Mode.TRAIN, 0)
    for i in range(1000):
        draft.rows(np.array([rows[i % 2]]), np.full((1, 32), float(i)))
    assert len(draft.tables) <= 257
    session.submit(draft)
    session.close("finished")
    stats = read(store).observations[0].stats
    assert stats[:, 5].tolist() == [998.0, 999.0]


def test_tensors_that_no_manifest_can_hold_are_left_out_and_the_others_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryObjects()
    session = start(store)
    with caplog.at_level(logging.WARNING, "trainwarden"):
        rows = [
            session.row(TensorInfo(f"{i}{'ä' * 1000}", "weights", module="ö" * 1000))
            for i in range(2000)
        ]
    assert rows[0] == 0
    assert rows[-1] == -1
    assert len(caplog.records) == 1
    draft = session.draft(0, Mode.TRAIN, 0)
    draft.rows(np.array([0, -1]), TABLE)
    session.submit(draft)
    assert session.close("finished")
    assert len(read(store).manifest.layout.tensors) == max(rows) + 1


def test_an_upload_that_is_given_up_ends_the_watch_in_the_training_thread() -> None:
    store, heard = Crashing(10**6), list[str]()
    session = start(store, limits=QUICK)
    adapter = Idle(heard)
    session.connect(adapter, heard.clear)
    save(session, 0)
    session.uploader._thread.join(30)
    assert not session.active
    assert heard == []
    assert session.guarded(save, session, 1) is None
    assert heard == ["hooks"]


def test_strict_raises_why_the_upload_was_given_up() -> None:
    session = start(Crashing(10**6), Options(strict=True), QUICK)
    save(session, 0)
    session.uploader._thread.join(30)
    with pytest.raises(TrainwardenError, match="too deep"):
        session.guarded(save, session, 1)
