"""What one call does, where it stops, and what it leaves to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.pipeline.world import JOB, NAN, START, WIDER, World, advancing, obs
from trainwarden.errors import ConflictError
from trainwarden.model import Status
from trainwarden.pipeline import Pipeline, Settings
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus


def test_a_finished_run_is_folded_judged_and_closed_in_one_commit() -> None:
    world = World()
    world.manifest()
    for seq in range(3):
        world.steps(seq, *(obs(10 * seq + i, NAN if seq == 2 else 1.0) for i in range(10)))
    found = world.pipeline().notice(world.end(2))
    assert (found.folded, found.findings, found.closed, found.more) == (30, 1, True, False)
    assert world.record().version == 1
    assert world.record().status is JobStatus.CLOSED
    assert world.record().outcome == "finished"
    assert world.findings() == [("ExplodingTensor", 20)]
    assert world.verdicts()["ExplodingTensor"].status is Status.ISSUES_FOUND
    assert world.verdicts()["LossNotDecreasing"].status is Status.NO_ISSUES_FOUND


def test_objects_are_folded_by_number_whatever_the_notices_say() -> None:
    world = World()
    world.manifest()
    keys = [world.steps(seq, obs(seq)) for seq in range(4)]
    pipeline = world.pipeline()
    for key in (keys[3], keys[1], keys[1], keys[0], keys[2], keys[3]):
        pipeline.notice(key)
    assert world.progress()["steps"] == 4
    assert world.record().watermarks == {0: (4, 0)}


def test_an_object_whose_predecessor_is_missing_waits_for_it() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(1, obs(1)))
    assert world.progress()["steps"] == 0
    assert pipeline.notice(world.steps(0, obs(0))).folded == 2


def test_a_notice_of_what_is_folded_already_commits_nothing() -> None:
    world = World()
    world.manifest()
    key = world.steps(0, obs(0))
    pipeline = world.pipeline()
    pipeline.notice(key)
    before = world.record()
    assert pipeline.notice(key).folded == 0
    assert world.record() == before


def test_a_foreign_key_is_told_and_nothing_is_recorded() -> None:
    world = World()
    found = world.pipeline().notice("jobs/../../etc/passwd.tw")
    assert found.job == ""
    assert "jobs/ grammar" in found.reason
    assert list(world.ledger.jobs()) == []


def test_a_call_reads_no_more_objects_than_allowed_and_says_there_is_more() -> None:
    world = World(settings=Settings(max_objects=5))
    world.manifest()
    notices = [world.steps(seq, obs(seq)) for seq in range(12)]
    pipeline = world.pipeline()
    calls = [pipeline.notice(notices[-1])]
    while calls[-1].more:
        calls.append(pipeline.ingest(JOB))
    assert [call.folded for call in calls] == [5, 5, 2]


def test_a_call_ends_at_a_step_boundary_when_its_time_is_over() -> None:
    world = World(settings=Settings(budget_s=5.0))
    world.manifest()
    for seq in range(40):
        world.steps(seq, obs(seq))
    slow = Pipeline(
        world.objects, world.ledger, None, world.settings, advancing(lambda: START, 0.5)
    )
    first = slow.ingest(JOB)
    assert first.more
    assert 0 < first.folded < 12
    assert world.progress()["steps"] == first.folded


def test_time_that_is_over_from_the_beginning_still_folds_one_step() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0))
    world.steps(1, obs(1))
    assert world.pipeline().ingest(JOB, until=START - 1).folded == 1


def test_every_worker_is_heard_even_if_there_are_more_workers_than_objects_allowed() -> None:
    world = World(settings=Settings(max_objects=2))
    workers = tuple(range(5))
    world.manifest(workers=workers, world_size=5)
    for worker in workers:
        for seq in range(2):
            world.steps(seq, obs(seq, worker=worker), worker=worker)
    pipeline = world.pipeline()
    assert pipeline.ingest(JOB).folded == 1
    assert pipeline.ingest(JOB).folded == 1
    assert pipeline.ingest(JOB).folded == 0


class _Counting(MemoryLedger):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        super().commit(record, entries)
        self.sizes.append(len(entries))


def test_many_findings_are_spread_over_commits_that_fit_a_transaction() -> None:
    world = World()
    # Each recovery lets ExplodingTensor fire anew: a finding at every second step.
    rules = {f"R{i}": {"rule": "ExplodingTensor"} for i in range(9)}
    world.manifest(rules=rules)
    world.steps(0, *(obs(step, NAN if step % 2 else 1.0) for step in range(40)))
    ledger = _Counting()
    found = world.pipeline(ledger=ledger).ingest(JOB)
    assert found.folded == 40
    assert len(list(ledger.entries(JOB, EntryKind.FINDING))) == found.findings
    assert found.findings > 100
    assert len(ledger.sizes) > 5
    assert max(ledger.sizes) <= 12 + 2 * 9 + 1


def test_what_the_hook_dropped_is_counted_once() -> None:
    world = World(settings=Settings(max_objects=1))
    world.manifest()
    world.steps(0, obs(0), obs(1), dropped={"queue full": 2})
    world.steps(1, obs(2), dropped={"queue full": 1, "too large": 4})
    pipeline = world.pipeline()
    told = [pipeline.ingest(JOB).dropped for _ in range(3)]
    assert told[0] == {"queue full": 2}
    assert told[1] == {"queue full": 1, "too large": 4}
    assert sum(told[2].values()) == 0
    assert world.progress()["dropped"] == {"queue full": 3, "too large": 4}


def test_a_wider_layout_is_read_from_the_manifest_when_an_object_needs_it() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    world.manifest(layout=WIDER)
    found = pipeline.notice(world.steps(1, obs(1, layout=WIDER)))
    assert (found.folded, found.rejected) == (1, 0)
    assert world.record().manifest["tensors"] == len(WIDER.tensors)


def test_a_warm_process_reads_the_manifest_once() -> None:
    world = World()
    key = world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    world.objects.delete(key)
    assert pipeline.notice(world.steps(1, obs(1))).folded == 1


class _Conflicting(MemoryLedger):
    """Another writer, who only counts, commits first ``times`` times."""

    times = 0

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        if self.times > 0 and record.version > 1:
            self.times -= 1
            stored = self.load(record.job)
            assert stored is not None
            super().commit(replace(stored, version=stored.version + 1))
        super().commit(record, entries)


def test_a_lost_race_is_folded_again_from_what_the_other_wrote() -> None:
    world, ledger = World(), _Conflicting()
    world.manifest()
    pipeline = world.pipeline(ledger=ledger)
    pipeline.notice(world.steps(0, obs(0)))
    ledger.times = 3
    found = pipeline.notice(world.steps(1, obs(1)))
    assert (found.folded, found.conflicts) == (1, 3)


def test_a_job_that_everybody_writes_goes_back_to_the_queue() -> None:
    world, ledger = World(), _Conflicting()
    world.manifest()
    pipeline = world.pipeline(ledger=ledger)
    pipeline.notice(world.steps(0, obs(0)))
    ledger.times = 1000
    with pytest.raises(ConflictError):
        pipeline.notice(world.steps(1, obs(1)))


def test_a_backwards_or_jumping_clock_is_mended_the_same_way_each_time() -> None:
    world = World(settings=Settings(max_objects=1))
    world.manifest()
    times = [START + 1, START - 500.0, START + 9e9, 0.0, START + 2]
    for seq, time in enumerate(times):
        world.steps(seq, obs(seq, time=time))
    pipeline, seen = world.pipeline(), []
    while pipeline.ingest(JOB).more:
        seen.append(world.progress()["time"])
    assert [*seen, world.progress()["time"]][:5] == [START + 1] * 4 + [START + 2]


def test_a_first_step_with_a_nonsense_clock_takes_the_manifests() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0, time=3.0))
    world.pipeline().ingest(JOB)
    assert world.progress()["time"] == START


def test_the_same_step_after_a_rollback_gives_findings_of_its_own() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(5), obs(6, NAN), obs(7), obs(5), obs(6, NAN))
    world.pipeline().ingest(JOB)
    assert world.findings() == [("ExplodingTensor", 6), ("ExplodingTensor", 6)]
