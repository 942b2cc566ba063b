"""Background upload: order, numbers, retries, bounds, the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.hook.recording import LAZY, QUICK, Crashing, Flaky, read
from trainwarden.errors import BadInputError, RetryableError
from trainwarden.hook.uploader import MAX_CRASHES, Limits, Uploader
from trainwarden.hook.waiting import Waiting
from trainwarden.model import Layout, Mode, Observation, TensorInfo
from trainwarden.store.memory import MemoryObjects
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.control import Control
from trainwarden.wire.keys import control_key
from trainwarden.wire.manifest import Manifest

MANIFEST = Manifest(job="job", run="run-1", identity="me")
LAYOUTS = [Layout(tuple(TensorInfo(f"t{i}", "weights") for i in range(n))) for n in range(4)]
WAIT_S = 30.0


def observation(step: int, rows: int = 2) -> Observation:
    return Observation(
        step=step,
        mode=Mode.TRAIN,
        mode_step=step,
        time=float(step),
        layout=LAYOUTS[rows],
        stats=np.full((rows, 32), float(step)),
        scalars={"losses": {"loss": float(step)}},
    )


class Refusing(MemoryObjects):
    """A bucket that may not be listed or read, as with a role that may only write."""

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        raise BadInputError("s3:ListBucket", f"AccessDenied to {prefix}{after}")

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        raise BadInputError("s3:GetObject", f"AccessDenied to {key}, {max_bytes}")


def start(
    store: ObjectStore,
    limits: Limits = LAZY,
    said: list[str] | None = None,
    manifest: Manifest = MANIFEST,
) -> Uploader:
    heard = [] if said is None else said
    return Uploader(lambda: store, manifest, limits=limits, report=heard.append)


def test_the_manifest_comes_before_the_steps_and_the_end_comes_last() -> None:
    store = Flaky([])
    uploader = start(store)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S)
    assert store.puts == [
        "jobs/job/manifest.tw",
        "jobs/job/steps/0000/0000000000.tw",
        "jobs/job/end/0000.tw",
    ]


def test_observations_come_back_as_they_were() -> None:
    store = MemoryObjects()
    uploader = start(store)
    for step in range(3):
        uploader.submit(observation(step))
    uploader.close("failed", WAIT_S)
    found = read(store)
    assert found.steps == [0, 1, 2]
    assert found.scalars("loss") == [0.0, 1.0, 2.0]
    assert [float(obs.stats[1, 5]) for obs in found.observations] == [0.0, 1.0, 2.0]
    assert found.end is not None
    assert (found.end.reason, found.end.last_seq, found.end.run) == ("failed", 0, "run-1")


def test_what_fails_is_tried_again_under_the_same_number() -> None:
    errors = [RetryableError("slow down") for _ in range(5)]
    store, said = Flaky(list(errors)), list[str]()
    uploader = start(store, QUICK, said)
    uploader.submit(observation(0))
    assert uploader.flush(WAIT_S)
    uploader.submit(observation(1))
    assert uploader.close("finished", WAIT_S)
    found = read(store.inner)  # ``read`` refuses gaps
    assert found.steps == [0, 1]
    assert len(said) == 2
    assert "slow down" in said[0]
    assert said[1] == "the upload works again"
    assert found.end is not None
    assert found.end.counters["retries"] == 5


def test_a_hiccup_is_not_worth_a_warning() -> None:
    store, said = Flaky([RetryableError("once")]), list[str]()
    uploader = start(store, QUICK, said)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S)
    assert said == []


def test_what_was_refused_is_said_at_once_and_works_when_the_policy_is_mended() -> None:
    store, said = (
        Flaky([BadInputError("to write", "AccessDenied", "allow s3:PutObject")]),
        list[str](),
    )
    uploader = start(store, QUICK, said)
    uploader.submit(observation(0))
    assert uploader.flush(WAIT_S) is True
    assert "allow s3:PutObject" in said[0]
    uploader.close("finished", WAIT_S)
    assert read(store.inner).steps == [0]


def test_refused_for_good_it_gives_up_at_the_end_without_waiting() -> None:
    store, said = (
        Flaky([BadInputError("to write", "AccessDenied") for _ in range(1000)]),
        list[str](),
    )
    uploader = start(store, replace(QUICK, retry_s=1e6, max_retry_s=1e6), said)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S) is False
    assert not uploader.alive
    assert len(said) == 1


def test_beyond_the_bound_the_oldest_are_dropped_and_counted_in_the_next_object() -> None:
    store = MemoryObjects()
    one = observation(0).stats.nbytes + 512
    uploader = start(store, replace(LAZY, pending_bytes=3 * one))
    for step in range(10):
        uploader.submit(observation(step))
    uploader.close("finished", WAIT_S)
    found = read(store)
    assert found.steps == [7, 8, 9]
    assert found.objects[0].dropped == {"steps": 7}
    assert found.end is not None
    assert found.end.counters == {"steps": 7}


def test_fifty_steps_make_an_object() -> None:
    store = MemoryObjects()
    uploader = start(store)
    for step in range(120):
        uploader.submit(observation(step))
    uploader.close("finished", WAIT_S)
    assert [len(obj.observations) for obj in read(store).objects] == [50, 50, 20]


def test_a_megabyte_makes_an_object() -> None:
    store = MemoryObjects()
    one = observation(0).stats.nbytes + 512
    uploader = start(store, replace(LAZY, flush_bytes=2 * one))
    for step in range(5):
        uploader.submit(observation(step))
    uploader.close("finished", WAIT_S)
    assert [len(obj.observations) for obj in read(store).objects] == [2, 2, 1]


def test_the_first_observation_is_sent_soon_and_later_ones_wait_longer() -> None:
    uploader = start(MemoryObjects(), Limits(first_flush_s=0.01, flush_s=0.08))
    for step in range(6):
        uploader.submit(observation(step))
        assert uploader.flush(WAIT_S)
    assert uploader._flush_s == 0.08
    uploader.close("finished", WAIT_S)


def test_a_layout_that_grew_is_put_before_the_object_that_needs_it() -> None:
    store = Flaky([])
    uploader = start(store)
    for step, rows in enumerate([1, 1, 3]):
        uploader.submit(observation(step, rows))
        assert uploader.flush(WAIT_S)
    uploader.close("finished", WAIT_S)
    kinds = [key.split("/")[2] for key in store.puts]
    assert kinds == ["manifest.tw", "steps", "steps", "manifest.tw", "steps", "end"]
    assert len(read(store.inner).manifest.layout.tensors) == 3


def test_a_run_that_saved_nothing_still_tells_that_it_was_there() -> None:
    store = MemoryObjects()
    assert start(store).close("finished", WAIT_S)
    found = read(store)
    assert found.objects == []
    assert found.end is not None
    assert found.end.last_seq == -1


def test_a_restart_of_the_same_job_continues_the_numbers_and_the_run() -> None:
    store = MemoryObjects()
    first = start(store)
    first.submit(observation(0))
    first.close("failed", WAIT_S)
    second = start(store, manifest=replace(MANIFEST, run="run-2"))
    second.submit(observation(1))
    second.close("finished", WAIT_S)
    found = read(store)
    assert found.steps == [0, 1]
    assert [obj.run for obj in found.objects] == ["run-1", "run-1"]
    assert found.objects[1].dropped == {"restarts": 1}
    assert found.end is not None
    assert (found.end.run, found.end.last_seq) == ("run-1", 1)


def test_a_run_of_the_same_name_that_is_no_restart_gets_a_name_of_its_own() -> None:
    store, said = MemoryObjects(), list[str]()
    for number in range(3):
        manifest = replace(MANIFEST, run=f"run-{number}")
        uploader = Uploader(
            lambda: store, manifest, continues=False, limits=LAZY, report=said.append
        )
        uploader.submit(observation(number))
        assert uploader.close("finished", WAIT_S)
        assert uploader.job == ("job", "job-2", "job-3")[number]
    assert [read(store, job).steps for job in ("job", "job-2", "job-3")] == [[0], [1], [2]]
    assert said[0] == "job was recorded before; this run is recorded as job-2"


def test_a_new_name_is_no_longer_than_a_name_may_be() -> None:
    store, long = MemoryObjects(), replace(MANIFEST, job="x" * 60 + "-yz")
    for job in ("x" * 60 + "-yz", "x" * 60 + "-2"):
        uploader = Uploader(lambda: store, long, continues=False, limits=LAZY)
        uploader.submit(observation(0))
        assert uploader.close("finished", WAIT_S)
        assert uploader.job == job


def test_somebody_elses_run_under_the_same_name_is_not_continued() -> None:
    store = MemoryObjects()
    first = start(store)
    first.submit(observation(0))
    first.close("finished", WAIT_S)
    second = start(store, manifest=replace(MANIFEST, run="run-2", identity="other"))
    second.submit(observation(0))
    second.close("finished", WAIT_S)
    assert [obj.run for obj in read(store).objects] == ["run-1", "run-2"]


def test_a_role_that_may_only_write_is_enough() -> None:
    store = Refusing()
    uploader = start(store)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S)
    assert len(list(MemoryObjects.keys(store, "jobs/"))) == 3


def test_advice_in_control_json_is_passed_on_once() -> None:
    store, heard, told = MemoryObjects(), list[Control](), threading.Event()

    def hear(control: Control) -> None:
        heard.append(control)
        told.set()

    store.put(control_key("job"), Control(version=1, stop=True, reason="it diverged").to_bytes())
    uploader = Uploader(lambda: store, MANIFEST, limits=QUICK, on_control=hear)
    uploader.submit(observation(0))
    assert told.wait(WAIT_S)
    uploader.submit(observation(1))
    uploader.flush(WAIT_S)
    uploader.close("finished", WAIT_S)
    assert [control.reason for control in heard] == ["it diverged"]


def test_advice_is_heard_though_a_loop_fills_what_waits_as_fast_as_it_is_sent() -> None:
    heard, sent, over = list[int](), list[str](), threading.Event()

    class Busy(MemoryObjects):
        def put(self, key: str, body: bytes) -> None:
            super().put(key, body)
            sent.append(key)
            if len(sent) < 20:
                uploader.submit(observation(len(sent)))  # one makes an object, so there is no rest
            else:
                over.set()

    store = Busy()
    MemoryObjects.put(store, control_key("job"), Control(version=1, stop=True).to_bytes())
    limits = Limits(flush_steps=1, first_flush_s=0.01, flush_s=0.01, control_s=0.0)
    uploader = Uploader(
        lambda: store, MANIFEST, limits=limits, on_control=lambda _: heard.append(len(sent))
    )
    uploader.submit(observation(0))
    assert over.wait(WAIT_S)
    uploader.close("finished", WAIT_S)
    assert len(heard) == 1
    assert heard[0] < 20


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b"x" * 100_000])
def test_nonsense_in_control_json_disturbs_nothing(body: bytes) -> None:
    store = MemoryObjects({control_key("job"): body})
    uploader = Uploader(lambda: store, MANIFEST, limits=QUICK, on_control=lambda _: None)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S)


def test_a_step_that_no_object_can_hold_is_dropped_alone() -> None:
    store, said = MemoryObjects(), list[str]()
    uploader = start(store, said=said)
    for step in range(7):
        uploader.submit(replace(observation(step), mode_step=-1 if step == 4 else step))
    assert uploader.close("finished", WAIT_S)
    assert read(store).steps == [0, 1, 2, 3, 5, 6]
    assert len(said) == 1
    found = read(store)
    assert found.dropped == {"unwritable": 1}
    assert found.end is not None
    assert found.end.counters == {"unwritable": 1}


def test_a_crash_of_the_thread_is_said_and_waits_for_nobody() -> None:
    class Broken(MemoryObjects):
        def put(self, key: str, body: bytes) -> None:
            raise ZeroDivisionError(f"a bug with {key}, {len(body)}")

    said = list[str]()
    uploader = start(Broken(), said=said)
    uploader.submit(observation(0))
    assert uploader.close("finished", WAIT_S) is False
    assert uploader.flush(WAIT_S) is False
    assert "a bug" in said[0]


def test_a_forked_child_uploads_nothing() -> None:
    store = MemoryObjects()
    uploader = start(store)
    uploader._pid = os.getpid() + 1  # what a child sees
    assert not uploader.alive
    assert uploader.flush(WAIT_S) is False
    assert uploader.close("finished", WAIT_S) is False
    uploader._pid = os.getpid()
    assert uploader.close("finished", WAIT_S)


def test_an_error_nobody_thought_of_is_said_once_and_tried_again() -> None:
    store, said = Crashing(MAX_CRASHES - 1), list[str]()
    uploader = start(store, QUICK, said)
    uploader.submit(observation(0))
    assert uploader.flush(WAIT_S)
    assert uploader.close("finished", WAIT_S)
    assert len(said) == 2
    assert "RecursionError('too deep')" in said[0]
    assert said[1] == "the upload works again"
    found = read(store)
    assert found.steps == [0]
    assert found.end is not None
    assert found.end.counters["errors"] == MAX_CRASHES - 1


def test_an_error_that_does_not_pass_ends_the_upload_and_nothing_waits_any_more() -> None:
    said, given_up = list[str](), list[Exception]()
    uploader = Uploader(
        lambda: Crashing(10**6),
        MANIFEST,
        limits=QUICK,
        report=said.append,
        on_failure=given_up.append,
    )
    uploader.submit(observation(0))
    uploader._thread.join(WAIT_S)
    assert not uploader.alive
    assert given_up == [uploader.error]
    assert len(said) == 2
    assert uploader.counters["errors"] == MAX_CRASHES
    uploader.submit(observation(1))
    assert len(uploader._waiting) == 0
    assert uploader.close("finished", WAIT_S) is False


def test_a_manifest_that_no_reader_takes_ends_the_upload_at_once() -> None:
    store, said, given_up = MemoryObjects(), list[str](), list[Exception]()
    uploader = Uploader(
        lambda: store,
        replace(MANIFEST, framework="x" * 10_000),
        limits=QUICK,
        report=said.append,
        on_failure=given_up.append,
    )
    uploader.submit(observation(0))
    uploader._thread.join(WAIT_S)
    assert not uploader.alive
    assert len(said) == len(given_up) == 1
    assert "'framework'" in said[0]


def test_labels_beyond_64_bits_cost_their_step_only() -> None:
    store, said = MemoryObjects(), list[str]()
    uploader = start(store, LAZY, said)
    uploader.submit(observation(0))
    uploader.submit(replace(observation(1), labels={"label/0": {2**64 - 1: 1}}))
    uploader.submit(observation(2))
    assert uploader.close("finished", WAIT_S)
    assert read(store).steps == [0, 2]
    assert read(store).dropped == {"unwritable": 1}


def test_counts_are_added_up_while_nothing_can_be_sent() -> None:
    waiting = Waiting(0)
    for step in range(10_000):
        waiting.push(observation(step))
    assert len(waiting._news) <= 1001
    assert waiting.news() == {"steps": 10_000}
