"""Another job's role may write below this job's prefix, knows its run and its identity."""

from __future__ import annotations

import pytest

from tests.unit.pipeline.storm import judged, told
from tests.unit.pipeline.world import (
    ARN,
    JOB,
    LAYOUT,
    NAN,
    WIDER,
    World,
    obs,
    steps_object,
    training_job,
)
from trainwarden.model import Layout, TensorInfo
from trainwarden.pipeline import Pipeline, Settings
from trainwarden.store.ports import JobStatus
from trainwarden.wire.identity import identity
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import End, Manifest
from trainwarden.wire.seal import fingerprint, seal_key, sealed

OWN = identity(ARN, {"lr": "0.1"})
GUESSED = seal_key(ARN, {})


def marked(settings: Settings | None = None) -> tuple[World, Pipeline]:
    """A marked, sealed SageMaker job whose first step is folded."""
    world = World(settings=settings or Settings())
    world.training.add(training_job(stop="allow"))
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(stop="allow"))
    pipeline.notice(world.sagemaker_manifest())
    pipeline.notice(world.steps(0, obs(0)))
    return world, pipeline


def forge(world: World, seq: int, *, worker: int = 0, run: str = "run-1") -> str:
    """What somebody can write who read the manifest: two steps that are NaN."""
    key = str(StepsKey(JOB, worker, seq))
    steps = (obs(100 + seq, NAN, worker=worker), obs(101 + seq, NAN, worker=worker))
    body = steps_object(seq, steps, worker=worker, run=run, sealable=True)
    return world.put(key, sealed(body, GUESSED, key))


def forged_manifest(world: World, run: str = "run-2", layout: Layout = LAYOUT) -> str:
    key = str(ManifestKey(JOB))
    body = Manifest(JOB, run, OWN, layout=layout, sagemaker=True).to_bytes(sealable=True)
    return world.put(key, sealed(body, GUESSED, key))


def may_stop(pipeline: Pipeline) -> bool:
    return pipeline.authorize_stop(JOB, "ExplodingTensor").allowed


def finish(world: World, pipeline: Pipeline, last_seq: int) -> None:
    pipeline.notice(world.end(last_seq))
    pipeline.close_job(training_job("Completed", "Completed", stop="allow"))
    assert world.record().status is JobStatus.CLOSED


def test_a_healthy_job_is_not_stopped_by_what_somebody_else_writes_at_its_next_numbers() -> None:
    world, pipeline = marked()
    for _ in range(3):
        for seq in (1, 2):
            pipeline.notice(forge(world, seq))
        world.clock += 60
        pipeline.sweep()
    assert world.findings() == []
    assert not may_stop(pipeline)
    assert world.record().watermarks == {0: (1, 0)}
    assert world.incidents() == ["UNSEALED 0 0"]
    (rejected,) = world.events("Data Rejected")
    assert rejected["found"] == "not sealed by this run: written by somebody else"


def test_the_runs_own_object_takes_the_place_of_a_forged_one_and_the_result_is_the_same() -> None:
    world, pipeline = marked()
    calm, quiet = marked()
    for seq in range(1, 5):
        pipeline.notice(forge(world, seq))
        pipeline.notice(forged_manifest(world, f"run-{seq}"))
        pipeline.notice(world.steps(seq, obs(seq, NAN if seq == 3 else 1.0)))
        quiet.notice(calm.steps(seq, obs(seq, NAN if seq == 3 else 1.0)))
    finish(world, pipeline, 4)
    finish(calm, quiet, 4)
    assert world.findings() == calm.findings() == [("ExplodingTensor", 3)]
    assert world.verdicts() == calm.verdicts()
    assert world.record().rules == calm.record().rules
    assert world.record().watermarks == calm.record().watermarks
    assert world.record().progress["lost"] == 0
    steps = [key for key in world.record().progress["refused"] if "/steps/" in key]
    assert len(steps) == 1  # the record does not grow with each forged object


def test_a_sealed_run_that_is_sick_may_be_stopped() -> None:
    world, pipeline = marked()
    assert world.progress()["sealed"] == fingerprint(world.seal)
    pipeline.notice(world.steps(1, obs(1, NAN)))
    assert may_stop(pipeline)


@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_a_forged_manifest_is_refused_once_and_changes_nothing(run: str) -> None:
    world, pipeline = marked()
    before = world.record().manifest
    for _ in range(3):
        pipeline.notice(forged_manifest(world, run, WIDER))
    assert world.record().manifest == before
    assert world.incidents() == ["MANIFEST 0 0"]
    assert pipeline.notice(world.steps(1, obs(1))).folded == 1
    assert world.progress()["attempt"] == 1


def test_a_forged_end_object_ends_nothing_and_the_real_one_does() -> None:
    world, pipeline = marked()
    key = str(EndKey(JOB, 0))
    for body in (End(JOB, 0, "run-1", 0).to_bytes(), b"junk", b"0" * 100_000):
        pipeline.notice(world.put(key, body))
        assert world.record().ended == {}
    assert world.incidents() == [f"END 0 {i}" for i in range(3)]
    pipeline.notice(world.steps(1, obs(1)))
    finish(world, pipeline, 1)
    assert world.progress()["lost"] == 0


@pytest.mark.parametrize("body", [b"", b"junk", b"\0" * (8 * 1024 * 1024 + 1)])
def test_junk_at_the_next_number_is_not_there_either(body: bytes) -> None:
    world, pipeline = marked()
    pipeline.notice(world.put(str(StepsKey(JOB, 0, 1)), body))
    assert world.incidents() == ["UNSEALED 0 0"]
    assert pipeline.notice(world.steps(1, obs(1))).folded == 1


def test_an_object_of_the_run_that_lies_under_another_key_is_not_its_own() -> None:
    world, pipeline = marked()
    moved = world.objects.get(str(StepsKey(JOB, 0, 0)), max_bytes=1 << 20) or b""
    pipeline.notice(world.put(str(StepsKey(JOB, 0, 1)), moved))
    assert world.incidents() == ["UNSEALED 0 0"]


def test_what_was_overwritten_is_lost_and_told_after_the_deadline_and_the_rest_is_judged() -> None:
    world, pipeline = marked()
    world.steps(1, obs(1))
    forge(world, 1)
    pipeline.notice(world.steps(2, obs(2)))
    world.clock += 40
    pipeline.sweep()
    world.clock += 300
    assert pipeline.sweep().lost == 1
    assert world.record().watermarks == {0: (3, 0)}
    assert len(world.events("Data Lost")) == 1


def test_what_somebody_else_left_does_not_outlive_the_job() -> None:
    world, pipeline = marked()
    for seq in range(1, 40):
        forge(world, seq)
    pipeline.close_job(training_job("Completed", "Completed", stop="allow"))
    world.clock += 120
    pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED
    assert world.record().watermarks == {0: (1, 0)}
    assert len(world.incidents()) == 1


def test_a_job_whose_objects_are_all_overwritten_is_not_stopped_for_its_silence() -> None:
    world, pipeline = marked()
    forge(world, 1)
    for _ in range(100):
        world.clock += 60
        pipeline.sweep()
    assert world.findings() == []


def test_a_run_that_does_not_seal_is_judged_and_told_and_never_stopped() -> None:
    world = World()
    world.training.add(training_job(stop="allow"))
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(stop="allow"))
    pipeline.notice(world.manifest(sagemaker=True, identity=OWN))
    pipeline.notice(world.steps(0, obs(0, NAN)))
    assert world.findings() == [("ExplodingTensor", 0)]
    decision = pipeline.authorize_stop(JOB, "ExplodingTensor")
    assert not decision.allowed
    assert "not sealed by this run" in decision.reason


@pytest.mark.parametrize("run", ["run-1", "run-2"])
def test_the_first_sealed_manifest_starts_over_what_a_forged_one_began(run: str) -> None:
    world = World()
    world.training.add(training_job(stop="allow"))
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(stop="allow"))
    pipeline.notice(forged_manifest(world, run, Layout((TensorInfo("evil", "weights"),))))
    pipeline.notice(forge(world, 0, run=run))
    pipeline.notice(world.sagemaker_manifest())
    assert not may_stop(pipeline)
    assert world.record().watermarks == {0: (0, 0)}
    assert pipeline.notice(world.steps(0, obs(0))).folded == 1
    assert not may_stop(pipeline)
    pipeline.notice(world.steps(1, obs(1, NAN)))
    assert may_stop(pipeline)


@pytest.mark.parametrize("asks_sagemaker", [True, False])
def test_nothing_is_folded_unchecked_before_the_description_comes(asks_sagemaker: bool) -> None:  # noqa: FBT001 (both)
    world = World()
    world.sagemaker_manifest()
    forge(world, 0)
    pipeline = world.pipeline(asks_sagemaker=asks_sagemaker)
    pipeline.ingest(JOB)
    world.training.add(training_job(stop="allow"))
    pipeline.ingest(JOB) if asks_sagemaker else pipeline.open_job(training_job(stop="allow"))
    assert world.progress()["sealed"] == fingerprint(world.seal)
    assert world.findings() == []
    assert world.progress()["attempt"] == 1
    assert pipeline.notice(world.steps(0, obs(0))).folded == 1


@pytest.mark.parametrize("status", ["InProgress", "Completed"])
def test_a_description_that_comes_late_has_everything_seen_afresh(status: str) -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.sagemaker_manifest())
    pipeline.notice(forge(world, 0))
    world.clock += 120
    pipeline.sweep()
    assert world.findings()
    world.steps(0, obs(0))
    pipeline.open_job(training_job(status, stop="allow"))
    assert world.progress()["attempt"] == 2
    found = {verdict.rule: verdict for verdict in world.verdicts().values()}
    assert found["ExplodingTensor"].findings == 0
    if status == "Completed":
        assert world.record().status is JobStatus.CLOSING
        pipeline.notice(world.end(0))
        assert (world.record().status, world.record().outcome) == (JobStatus.CLOSED, "Completed")


def test_a_nonce_that_is_changed_takes_the_seal_away_and_brings_it_back() -> None:
    world, pipeline = marked()
    world.training.add(training_job(stop="allow", nonce="later"))
    pipeline.open_job(training_job(stop="allow", nonce="later"))
    pipeline.notice(world.steps(1, obs(1, NAN)))
    assert not may_stop(pipeline)
    world.training.add(training_job(stop="allow"))
    assert not may_stop(pipeline)
    pipeline.open_job(training_job(stop="allow"))
    assert may_stop(pipeline)
    assert world.progress()["attempt"] == 2


def test_a_restarted_container_may_begin_a_new_sealed_run() -> None:
    world, pipeline = marked()
    pipeline.notice(world.sagemaker_manifest(run="run-2"))
    pipeline.notice(world.steps(0, obs(0), run="run-2"))
    pipeline.notice(world.steps(1, obs(1, NAN), run="run-2"))
    assert world.record().manifest["run"] == "run-2"
    assert may_stop(pipeline)


def test_a_process_that_starts_cold_takes_no_forged_manifest_for_the_accepted_one() -> None:
    world, _ = marked()
    forged_manifest(world, "run-1", WIDER)
    world.steps(1, obs(1))
    cold = world.pipeline()
    cold.ingest(JOB)
    assert world.record().manifest["tensors"] == len(LAYOUT.tensors)
    assert world.findings() == []
    cold.notice(world.sagemaker_manifest())
    assert world.record().watermarks == {0: (2, 0)}


def test_forging_is_the_same_to_every_process() -> None:
    def attacked(*, cold: bool) -> World:
        world, pipeline = marked()
        for seq in range(1, 4):
            for key in (forge(world, seq), world.steps(seq, obs(seq))):
                (world.pipeline() if cold else pipeline).notice(key)
        finish(world, pipeline, 3)
        return world

    assert judged(attacked(cold=True)) == judged(attacked(cold=False))
    assert told(attacked(cold=True)) == told(attacked(cold=False))
