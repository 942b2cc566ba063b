"""What is wrong is recorded once with its reason, and nothing else is lost for it."""

from __future__ import annotations

import struct

import pytest

from tests.unit.pipeline.world import (
    JOB,
    LAYOUT,
    NAN,
    START,
    WIDER,
    World,
    obs,
    steps_object,
    training_job,
)
from trainwarden.model import Layout, Status, TensorInfo
from trainwarden.pipeline import Settings
from trainwarden.store.ports import EntryKind, JobStatus
from trainwarden.wire.codec import MAX_OBJECT_BYTES
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey

GOOD = steps_object(1, [obs(1)])
NEWER = GOOD.replace(b'\\"wire\\":1', b'\\"wire\\":9')
assert NEWER != GOOD
BAD_OBJECTS = {
    "empty": b"",
    "truncated": GOOD[: len(GOOD) // 2],
    "cut by one byte": GOOD[:-1],
    "grown by one byte": GOOD + b"\0",
    "no safetensors at all": b"\x00" * 64,
    "header bomb": struct.pack("<Q", 1 << 62) + b"{}",
    "nested bomb": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "too large": b"\0" * (MAX_OBJECT_BYTES + 1),
    "wire version of the future": NEWER,
    "another job's": steps_object(1, [obs(1)], job="other"),
    "another worker's": steps_object(1, [obs(1, worker=3)], worker=3),
    "another number's": steps_object(7, [obs(1)]),
    "a run never announced": steps_object(1, [obs(1)], run="run-x"),
    "a step nobody can reach": steps_object(1, [obs(10**12)]),
    "other rows": steps_object(1, [obs(1, layout=Layout((TensorInfo("other", "weights"),)))]),
}


@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_a_bad_object_is_passed_once_with_its_reason_and_the_rest_is_judged(name: str) -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    key = world.put(str(StepsKey(JOB, 0, 1)), BAD_OBJECTS[name])
    first = pipeline.notice(key)
    again = [pipeline.notice(key) for _ in range(3)]
    pipeline.notice(world.steps(2, obs(2, NAN)))
    pipeline.notice(world.end(2))
    assert (first.rejected, first.more) == (1, False)
    assert [found.rejected for found in again] == [0, 0, 0]
    assert world.incidents() == ["REJECTED 0 1"]
    (told,) = world.events("Data Rejected")
    assert told["key"] == key
    assert told["expected"]
    assert told["found"]
    assert world.findings() == [("ExplodingTensor", 2)]
    assert world.progress()["steps"] == 2
    assert world.record().status is JobStatus.CLOSED


def test_an_incident_its_event_and_the_watermark_are_one_commit() -> None:
    world = World()
    world.manifest()
    world.put(str(StepsKey(JOB, 0, 0)), b"junk")
    world.pipeline().ingest(JOB)
    assert world.record().version == 1
    assert world.record().watermarks == {0: (1, 0)}
    assert len(world.events("Data Rejected")) == len(world.incidents()) == 1


def test_a_thousand_bad_objects_are_passed_in_commits_of_bounded_size() -> None:
    world = World(settings=Settings(max_objects=10_000, max_requests=10_000))
    world.manifest()
    for seq in range(1_000):
        world.put(str(StepsKey(JOB, 0, seq)), b"junk")
    world.steps(1_000, obs(0))
    found = world.pipeline().ingest(JOB)
    assert (found.rejected, found.folded) == (1_000, 1)
    assert len(world.entries(EntryKind.OUTBOX)) >= 1_000 // 13


def test_an_object_that_is_overwritten_by_a_shorter_one_is_passed() -> None:
    world = World(settings=Settings(max_objects=1))
    world.manifest(workers=(0, 1), world_size=2)
    world.steps(0, obs(0), obs(1), obs(2), worker=0)
    world.steps(0, obs(0, worker=1), worker=1)
    pipeline = world.pipeline()
    pipeline.ingest(JOB)
    assert world.record().watermarks[0] == (0, 1)
    world.steps(0, obs(0), worker=0)
    world.steps(1, obs(3), worker=0)
    world.steps(1, obs(3, worker=1), worker=1)
    while pipeline.ingest(JOB).more:
        pass
    assert world.record().watermarks == {0: (2, 0), 1: (2, 0)}


def test_a_malformed_manifest_is_told_once_and_a_good_one_heals_it() -> None:
    world = World()
    pipeline = world.pipeline()
    key = world.put(str(ManifestKey(JOB)), b'{"wire": 1, "job": NaN}')
    world.steps(0, obs(0))
    for _ in range(3):
        pipeline.notice(key)
    assert world.incidents() == ["MANIFEST 0 0"]
    assert world.record().status is JobStatus.ANNOUNCED
    assert pipeline.notice(world.manifest()).folded == 1


def test_another_malformed_manifest_is_told_again() -> None:
    world = World()
    pipeline = world.pipeline()
    for body in (b"", b"{}"):
        pipeline.notice(world.put(str(ManifestKey(JOB)), body))
    assert world.incidents() == ["MANIFEST 0 0", "MANIFEST 0 1"]


def test_another_jobs_manifest_is_refused() -> None:
    world = World()
    key = world.manifest(job="other")
    body = world.objects.get(key, max_bytes=1 << 20)
    assert body is not None
    world.pipeline().notice(world.put(str(ManifestKey(JOB)), body))
    (told,) = world.events("Data Rejected")
    assert (told["expected"], told["found"]) == (f"the manifest of {JOB}", "that of other")


def test_a_manifest_overwritten_with_rubbish_does_not_stop_a_warm_process() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.notice(world.put(str(ManifestKey(JOB)), b"rubbish"))
    assert pipeline.notice(world.steps(1, obs(1))).folded == 1
    assert world.incidents() == ["MANIFEST 0 0"]


def test_without_a_readable_manifest_objects_wait_and_are_given_up_at_the_deadline() -> None:
    world = World()
    world.manifest()
    world.pipeline().notice(world.steps(0, obs(0)))
    world.put(str(ManifestKey(JOB)), b"rubbish")
    world.steps(1, obs(1))
    world.steps(2, obs(2))
    world.clock += 60
    world.pipeline().ingest(JOB, thorough=True)  # a process that never saw the manifest
    assert world.incidents() == ["MANIFEST 0 0"]
    world.clock += world.settings.gap_deadline_s
    world.pipeline().ingest(JOB, thorough=True)
    assert world.incidents() == ["MANIFEST 0 0", "REJECTED 0 1", "REJECTED 0 2"]
    assert "cannot be read" in world.events("Data Rejected")[-1]["found"]


def test_rows_that_the_manifest_lacks_wait_for_it() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0, layout=WIDER)))
    assert world.progress()["steps"] == 0
    assert world.incidents() == []
    assert pipeline.notice(world.manifest(layout=WIDER)).folded == 1


def test_a_manifest_that_changes_rows_is_refused_and_the_first_one_stays() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    before = world.record().manifest
    pipeline.notice(world.manifest(layout=Layout((TensorInfo("evil", "weights"), *LAYOUT.tensors))))
    assert world.record().manifest == before
    assert world.incidents() == ["MANIFEST 0 0"]


def test_another_training_jobs_manifest_does_not_take_the_job_over() -> None:
    world = World()
    world.sagemaker_manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    world.clock += 200
    key = world.manifest(run="run-evil", sagemaker=True, identity="0" * 32)
    for _ in range(2):
        pipeline.notice(key)
    pipeline.notice(world.steps(1, obs(1, NAN), run="run-evil"))
    assert world.record().manifest["run"] == "run-1"
    assert world.incidents() == ["MANIFEST 0 0", "REJECTED 0 1"]
    assert world.findings() == []


def test_a_worker_that_the_manifest_does_not_name_is_told_once() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    for seq in range(3):
        pipeline.notice(world.steps(seq, obs(seq, worker=7), worker=7))
    pipeline.notice(world.steps(0, obs(0)))
    assert world.incidents() == ["STRANGER 7 0"]
    assert world.progress()["steps"] == 1


def test_no_more_than_32_strange_workers_are_told() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    for worker in range(1, 60):
        pipeline.notice(world.steps(0, obs(0, worker=worker), worker=worker))
    assert len(world.incidents()) == 32


def test_an_end_that_says_too_little_is_contradicted_by_the_objects_that_are_there() -> None:
    world = World()
    world.manifest()
    for seq in range(4):
        world.steps(seq, obs(seq))
    pipeline = world.pipeline()
    pipeline.notice(world.end(1, time=START + 60))
    assert world.progress()["steps"] == 4
    assert world.record().status is JobStatus.OPEN
    world.clock += 60
    pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED
    assert world.incidents() == ["END 0 0"]


def test_an_end_that_says_too_much_closes_the_job_after_the_deadline() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0))
    pipeline = world.pipeline()
    pipeline.notice(world.end(9_999_999_999))
    assert world.record().status is JobStatus.OPEN
    for _ in range(2):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED
    (told,) = world.events("Data Lost")
    assert (told["first_seq"], told["last_seq"]) == (1, 9_999_999_999)


def test_an_unreadable_end_still_ends_the_worker_after_what_is_there() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0))
    world.steps(1, obs(1))
    world.pipeline().notice(world.put(str(EndKey(JOB, 0)), b"{"))
    assert world.progress()["steps"] == 2
    assert world.record().status is JobStatus.CLOSED
    assert world.record().outcome == "unknown"
    assert world.incidents() == ["END 0 0"]


def test_an_end_of_another_run_is_refused_and_the_job_goes_on() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    key = world.end(0, run="run-x")
    for _ in range(3):
        pipeline.notice(key)
    assert pipeline.notice(world.steps(0, obs(0))).folded == 1
    assert world.incidents() == ["END 0 0"]
    pipeline.notice(world.end(0))
    assert world.record().status is JobStatus.CLOSED


def test_objects_after_the_end_of_a_sagemaker_job_are_told_once_and_change_no_verdict() -> None:
    world = World()
    world.sagemaker_manifest()
    world.steps(0, obs(0))
    world.end(0)
    pipeline = world.pipeline()
    pipeline.close_job(training_job("Completed", "Completed"))
    before = world.verdicts()
    key = world.steps(2, obs(2, NAN))
    for _ in range(3):
        pipeline.notice(key)
    pipeline.notice(world.steps(1, obs(1, NAN)))
    assert world.incidents() == ["LATE 0 1"]
    assert world.verdicts() == before
    assert world.record().status is JobStatus.CLOSED


def test_a_bad_object_after_the_end_of_a_job_does_not_open_it_again() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0))
    pipeline = world.pipeline()
    pipeline.notice(world.end(0))
    pipeline.notice(world.put(str(StepsKey(JOB, 0, 1)), b"junk"))
    assert world.incidents() == ["LATE 0 1"]
    assert world.record().status is JobStatus.CLOSED


def test_a_bad_object_far_ahead_does_not_make_the_pipeline_skip_what_still_comes() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    world.put(str(StepsKey(JOB, 0, 9_999_999_999)), b"junk")
    for _ in range(4):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    assert pipeline.notice(world.steps(1, obs(1))).folded == 1
    assert world.events("Data Lost") == []


def test_bad_and_missing_objects_before_the_end_of_a_killed_run_are_all_recorded() -> None:
    world = World()
    world.manifest()
    world.steps(0, obs(0))
    world.put(str(StepsKey(JOB, 0, 3)), b"junk")
    pipeline = world.pipeline()
    pipeline.ingest(JOB)
    pipeline.end(JOB, "killed")
    assert world.incidents() == ["LOST 0 1", "REJECTED 0 3"]
    assert world.record().status is JobStatus.CLOSED


def test_foreign_files_between_the_objects_are_ignored() -> None:
    world = World()
    world.manifest()
    world.put(f"jobs/{JOB}/steps/0000/readme.txt", b"hello")
    world.steps(1, obs(1))
    pipeline = world.pipeline()
    world.clock += 60
    pipeline.sweep()
    pipeline.ingest(JOB, thorough=True)
    world.clock += world.settings.gap_deadline_s + 60
    pipeline.sweep()
    assert world.incidents() == ["LOST 0 0"]
    assert world.progress()["steps"] == 1


def test_a_rule_that_crashes_is_an_error_of_its_own_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainwarden.rules.overfit import Overfit

    def crash(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Overfit, "advance", crash)
    world = World()
    world.manifest()
    world.steps(0, obs(0), obs(1, NAN))
    world.pipeline().notice(world.end(0))
    assert world.verdicts()["Overfit"].status is Status.ERROR
    assert "oops" in world.verdicts()["Overfit"].note
    assert world.verdicts()["ExplodingTensor"].status is Status.ISSUES_FOUND
    told = [e["rule"] for e in world.events("Verdict Changed") if e["status"] == "Error"]
    assert told == ["Overfit"]


def test_a_rule_name_nobody_knows_is_told_and_the_job_is_judged() -> None:
    world = World()
    world.manifest(rules={"VanishingGradientt": {}, "ExplodingTensor": {}})
    world.steps(0, obs(0, NAN))
    world.pipeline().notice(world.end(0))
    (told,) = world.events("Job Opened")
    assert told["problem_count"] >= 1
    assert world.record().status is JobStatus.CLOSED
