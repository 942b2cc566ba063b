"""Processes that record one run: what the first one tells, and where the others write."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tests.unit.hook.recording import LAZY, QUICK, read
from trainwarden.errors import TrainwardenError
from trainwarden.hook.team import Run
from trainwarden.hook.uploader import Limits, Uploader
from trainwarden.model import Layout, Mode, Observation, TensorInfo
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.manifest import Manifest

A, B, C = (TensorInfo(name, "weights") for name in "abc")
WAIT_S = 30.0


@dataclass
class Meeting:
    """A team in memory."""

    ranks: tuple[int, ...] = (0, 1)
    size: int = 2
    said: list[Run] = field(default_factory=list)

    def writers(self) -> tuple[int, ...]:
        return self.ranks

    def tell(self, run: Run) -> None:
        self.said.append(run)

    def told(self) -> Run | None:
        return self.said[-1] if self.said else None


def observation(step: int, *tensors: TensorInfo) -> Observation:
    rows = np.array([np.full(32, 10.0 * step + ord(t.name[0])) for t in tensors])
    return Observation(step, Mode.TRAIN, step, float(step), Layout(tensors), rows)


def start(
    store: MemoryObjects,
    team: Meeting,
    worker: int,
    *,
    limits: Limits = LAZY,
    said: list[str] | None = None,
    job: str = "job",
) -> Uploader:
    heard = [] if said is None else said
    manifest = Manifest(job=job, run=f"run-{worker}", workers=(worker,), world_size=1)
    return Uploader(
        lambda: store,
        manifest,
        worker=worker,
        team=team,
        continues=False,
        limits=limits,
        report=heard.append,
    )


def test_rows_of_the_second_process_stand_where_the_first_one_has_them() -> None:
    store, team = MemoryObjects(), Meeting()
    first, second = start(store, team, 0), start(store, team, 1, job="a-name-of-its-own")
    first.submit(observation(0, A, B, C))
    second.submit(observation(0, C, A))
    assert first.close("finished", WAIT_S)
    assert second.close("finished", WAIT_S)
    found = read(store, worker=1)
    assert found.manifest.workers == (0, 1)
    assert found.manifest.world_size == 2
    assert [obj.run for obj in found.objects] == ["run-0"]
    assert found.end is not None
    assert found.end.run == "run-0"
    stats = found.observations[0].stats[:, 0]
    assert stats[[0, 2]].tolist() == [float(ord("a")), float(ord("c"))]
    assert np.isnan(stats[1])


def test_the_second_process_waits_for_the_first_one_and_loses_nothing_meanwhile() -> None:
    store, team, said = MemoryObjects(), Meeting(), list[str]()
    second = start(store, team, 1, limits=replace(QUICK, max_retry_s=0.001), said=said)
    for step in range(3):
        second.submit(observation(step, A))
    assert not second.flush(0.05)
    first = start(store, team, 0)
    first.submit(observation(0, A))
    assert first.close("finished", WAIT_S)
    assert second.close("finished", WAIT_S)
    assert read(store, worker=1).steps == [0, 1, 2]


def test_a_row_that_the_first_process_gets_later_is_waited_for() -> None:
    store, team = MemoryObjects(), Meeting()
    first, second = start(store, team, 0), start(store, team, 1, limits=QUICK)
    first.submit(observation(0, A))
    assert first.flush(WAIT_S)
    second.submit(observation(0, A))
    assert second.flush(WAIT_S)
    second.count("errors")
    second.submit(observation(1, A, B))
    first.submit(observation(1, A, B))
    assert first.close("finished", WAIT_S)
    assert second.close("finished", WAIT_S)
    found = read(store, worker=1)
    assert found.steps == [0, 1]
    assert found.observations[1].stats[1, 0] == 10.0 + ord("b")
    assert found.dropped == {"errors": 1}


def test_a_row_that_the_first_process_never_has_is_left_out() -> None:
    store, team = MemoryObjects(), Meeting()
    first = start(store, team, 0)
    first.submit(observation(0, A))
    assert first.close("finished", WAIT_S)
    second = start(store, team, 1, limits=QUICK)
    second.submit(observation(0, A, B))
    assert second.close("finished", WAIT_S)
    assert len(read(store, worker=1).observations[0].stats) == 1


def test_a_name_that_was_used_before_is_changed_in_all_processes() -> None:
    store = MemoryObjects()
    for name, tensor in (("job", A), ("job-2", B)):
        team = Meeting()
        both = [start(store, team, worker) for worker in (0, 1)]
        for uploader in both:
            uploader.submit(observation(0, tensor))
            assert uploader.close("finished", WAIT_S)
        assert read(store, name, worker=1).manifest.layout.names == (tensor.name,)


def test_a_process_that_the_first_one_does_not_know_says_so_and_does_not_wait_at_the_end() -> None:
    store, team, said = MemoryObjects(), Meeting(ranks=(0,)), list[str]()
    first, second = start(store, team, 0), start(store, team, 1, said=said)
    first.submit(observation(0, A))
    assert first.close("finished", WAIT_S)
    second.submit(observation(0, A))
    assert not second.close("finished", WAIT_S)
    assert isinstance(second.error, TrainwardenError)
    assert "before the first step" in said[0]
    assert not [*store.keys("jobs/job/steps/0001")]
