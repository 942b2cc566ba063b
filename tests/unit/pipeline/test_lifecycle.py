"""Jobs open, wait, fall silent, end, and start over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.pipeline.world import ARN, JOB, NAN, START, World, obs, training_job
from trainwarden.cli.mute import muted
from trainwarden.errors import NotFoundError, RetryableError
from trainwarden.model import Layout, Status, TensorInfo
from trainwarden.pipeline import Pipeline, Settings
from trainwarden.store.memory import MemoryLedger, MemoryObjects, MemoryTrainingJobs
from trainwarden.store.ports import JobRecord, JobStatus, TrainingJob


def test_a_sagemaker_run_waits_for_sagemakers_description_and_its_tags() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.sagemaker_manifest())
    pipeline.notice(world.steps(0, obs(0, NAN)))
    assert world.record().status is JobStatus.ANNOUNCED
    assert world.events() == []
    found = pipeline.open_job(training_job(stop="allow"))
    assert found.folded == 1
    assert world.record().status is JobStatus.OPEN
    (told,) = world.events("Verdict Changed")
    stop = next(action for action in told["actions"] if action["kind"] == "stop")
    assert stop["allowed"] is True
    assert told["instance"] == "ml.g5.xlarge"


def test_a_description_that_comes_first_opens_the_job_with_the_first_manifest() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job(rules="ExplodingTensor"))
    assert world.record().status is JobStatus.ANNOUNCED
    pipeline.notice(world.sagemaker_manifest(rules={"Overfit": {}}))
    (told,) = world.events("Job Opened")
    assert told["rules"] == ["ExplodingTensor"]


def test_a_job_that_a_person_muted_stays_muted_when_sagemaker_tells_of_it_again() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.sagemaker_manifest())
    pipeline.open_job(training_job(stop="allow"))
    record = muted(world.record(), "ExplodingTensor", undo=False)
    world.ledger.commit(replace(record, version=record.version + 1))
    pipeline.open_job(training_job(stop="allow"))
    pipeline.notice(world.steps(0, obs(0, NAN)))
    (told,) = world.events("Verdict Changed")
    assert (told["rule"], told["muted"], told["stop_requested"]) == ("ExplodingTensor", True, False)
    back = muted(world.record(), "ExplodingTensor", undo=True)
    assert list(back.config["muted"]) == []


def test_a_description_that_never_comes_is_waited_for_two_minutes() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.sagemaker_manifest())
    world.steps(0, obs(0))
    world.clock += 119
    pipeline.sweep()
    assert world.record().status is JobStatus.ANNOUNCED
    world.clock += 1
    pipeline.sweep()
    assert world.progress()["steps"] == 1
    pipeline.notice(world.end(0))
    assert world.record().status is JobStatus.CLOSED


def test_a_process_that_may_ask_sagemaker_does_not_wait() -> None:
    world = World()
    world.training.add(training_job(stop="allow"))
    world.sagemaker_manifest()
    world.steps(0, obs(0))
    assert world.pipeline(asks_sagemaker=True).ingest(JOB).folded == 1
    assert world.record().training["arn"] == ARN


def test_a_description_that_comes_late_gives_permissions_but_no_other_rules() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.manifest(sagemaker=True))  # of a hook that does not seal
    world.steps(0, obs(0))
    world.clock += 120
    pipeline.sweep()
    before = world.record().config["rules"]
    pipeline.open_job(training_job(stop="allow", rules="Overfit", mute="DeadRelu"))
    assert world.record().config["rules"] == before
    assert world.record().config["stop"] is True
    assert world.record().config["muted"] == ["DeadRelu"]


def test_a_description_that_comes_before_the_first_step_still_chooses_the_rules() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.sagemaker_manifest())
    world.clock += 120
    pipeline.sweep()
    pipeline.open_job(training_job(rules="Overfit"))
    pipeline.notice(world.steps(0, obs(0)))
    assert list(world.verdicts()) == ["Overfit"]


def test_the_same_description_again_commits_nothing() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    version = world.record().version
    pipeline.open_job(training_job())
    assert world.record().version == version


def test_an_end_closes_a_sagemaker_job_only_once_sagemaker_says_so() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    world.steps(0, obs(0))
    pipeline.notice(world.end(0))
    assert world.record().status is JobStatus.OPEN
    pipeline.close_job(training_job("Completed", "Completed"))
    assert world.record().status is JobStatus.CLOSED
    assert world.record().outcome == "Completed"
    assert [told["outcome"] for told in world.events("Job Closed")] == ["Completed"]


def test_a_killed_sagemaker_job_is_closed_after_its_grace_with_all_that_came() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.close_job(training_job("Stopped", "Stopped"))
    assert world.record().status is JobStatus.CLOSING
    pipeline.notice(world.steps(1, obs(1, NAN)))
    world.clock += world.settings.closing_grace_s
    pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED
    assert world.verdicts()["ExplodingTensor"].status is Status.ISSUES_FOUND
    assert world.verdicts()["LossNotDecreasing"].status is Status.STOPPED


def test_a_gap_is_not_waited_for_beyond_the_grace() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    world.steps(1, obs(1))
    pipeline.close_job(training_job("Failed", "Failed"))
    world.clock += world.settings.closing_grace_s
    pipeline.sweep()
    assert world.incidents() == ["LOST 0 0"]
    assert world.record().status is JobStatus.CLOSED


def test_events_that_overtake_each_other_leave_a_closed_job_closed() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    world.steps(0, obs(0))
    world.end(0)
    pipeline.open_job(training_job("Completed", "Completed"))
    before = world.record()
    assert before.status is JobStatus.CLOSED
    pipeline.open_job(training_job())
    pipeline.close_job(training_job("Failed", "Failed"))
    assert world.record() == before


def test_a_lost_end_event_is_asked_for_where_sagemaker_may_be_asked() -> None:
    world = World()
    world.training.add(training_job())
    pipeline = world.pipeline(asks_sagemaker=True)
    world.sagemaker_manifest()
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.notice(world.end(0))
    world.training.add(training_job("Completed", "Completed"))
    world.clock += world.settings.gap_deadline_s
    pipeline.sweep()
    pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED


class _Denied(MemoryTrainingJobs):
    def describe(self, name: str) -> TrainingJob | None:
        from trainwarden.errors import BadInputError

        raise BadInputError("permission to describe", f"access denied to {name}")


def test_a_process_that_sagemaker_refuses_waits_for_the_event() -> None:
    world = World(training=_Denied())
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.notice(world.sagemaker_manifest())
    assert world.record().status is JobStatus.ANNOUNCED


def test_a_closed_job_without_a_manifest_has_the_verdict_no_data() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job())
    pipeline.close_job(training_job("Completed", "Completed"))
    world.clock += world.settings.closing_grace_s
    pipeline.sweep()
    verdict = world.verdicts()["NoData"]
    assert (verdict.code, verdict.status) == ("SYS002", Status.ISSUES_FOUND)
    assert "found nothing" in verdict.note
    assert "trainwarden.watch" in verdict.note
    assert not world.verdicts()["VanishingGradient"].evaluated
    told = {e["rule"]: e["status"] for e in world.events("Verdict Changed")}
    assert told["NoData"] == "IssuesFound"
    assert "NoData" in world.events("Job Closed")[0]["issues"]


def test_no_data_tells_a_manifest_without_steps_and_refused_objects_apart() -> None:
    world = World()
    world.manifest()
    world.pipeline().notice(world.end(-1))
    assert "a manifest and no step" in world.verdicts()["NoData"].note
    world = World()
    world.manifest()
    world.put(f"jobs/{JOB}/steps/0000/0000000000.tw", b"junk")
    world.pipeline().notice(world.end(0))
    assert "not acceptable" in world.verdicts()["NoData"].note
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.end(JOB, "copied in part")
    assert "steps without one" in world.verdicts()["NoData"].note


def test_training_without_data_is_told_while_it_runs_and_taken_back_when_data_comes() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job())
    world.clock += world.settings.no_data_deadline_s
    pipeline.sweep()
    pipeline.sweep()
    assert world.verdicts()["NoData"].status is Status.ISSUES_FOUND
    pipeline.notice(world.sagemaker_manifest())
    pipeline.notice(world.steps(0, obs(0)))
    assert "NoData" not in world.verdicts()
    told = [e["status"] for e in world.events("Verdict Changed") if e["rule"] == "NoData"]
    assert told == ["IssuesFound", "NoIssuesFound"]


def test_a_job_that_waits_for_its_instance_has_no_data_yet() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job(secondary="Pending"))
    world.clock += 10 * world.settings.no_data_deadline_s
    pipeline.sweep()
    assert world.verdicts() == {}


def test_a_run_outside_sagemaker_that_is_killed_is_closed_when_it_is_abandoned() -> None:
    world = World()
    pipeline = world.pipeline()
    world.manifest()
    pipeline.notice(world.steps(0, obs(0)))
    world.clock += world.settings.abandoned_after_s
    pipeline.sweep()
    pipeline.sweep()
    assert world.record().status is JobStatus.CLOSED
    assert world.record().outcome == "abandoned"


def test_silence_is_measured_by_one_clock_however_wrong_the_containers_is() -> None:
    for skew in (-7200.0, 0.0, 7200.0):
        world = World()
        pipeline = world.pipeline()
        world.manifest(created=START + skew)
        pipeline.notice(world.steps(0, obs(0, time=START + skew)))
        world.clock += 1799
        pipeline.sweep()
        assert world.findings() == []
        world.clock += 60
        pipeline.sweep()
        assert world.findings() == [("StalledTrainingRule", 0)]
        pipeline.sweep()
        assert len(world.findings()) == 1


def test_a_worker_that_has_ended_does_not_stall() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    world.steps(0, obs(0))
    pipeline.notice(world.end(0))
    world.clock += 10_000
    pipeline.sweep()
    assert world.findings() == []


def test_a_sweep_heals_every_lost_notice() -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    for seq in range(1, 4):
        world.steps(seq, obs(seq))
    world.end(3)
    assert pipeline.sweep().folded == 0  # an evaluator has just been at it
    world.clock += 60
    swept = pipeline.sweep()
    assert (swept.jobs, swept.folded, swept.closed) == (1, 3, 1)
    assert pipeline.sweep().jobs == 0


class _OneBroken(MemoryLedger):
    def load(self, job: str) -> JobRecord | None:
        if job == "broken":
            raise RetryableError("throttled")
        return super().load(job)


def test_one_job_that_cannot_be_read_does_not_hold_up_the_others() -> None:
    ledger, world = _OneBroken(), World()
    for name in ("broken", JOB):
        ledger.commit(JobRecord(name, version=1, opened_at=START, last_seen=START))
    world.manifest()
    world.steps(0, obs(0))
    swept = world.pipeline(ledger=ledger).sweep()
    assert (swept.jobs, swept.folded) == (2, 1)
    assert swept.failed == {"broken": "throttled"}


def test_a_sweep_ends_in_time_and_begins_elsewhere_next_minute() -> None:
    ledger, time, seen = MemoryLedger(), [START], list[str]()
    for i in range(4):
        ledger.commit(JobRecord(f"job-{i}", version=1, opened_at=START, last_seen=START))

    class Slow(MemoryObjects):
        def get(self, key: str, *, max_bytes: int) -> bytes | None:
            seen.append(key.split("/")[1])
            time[0] += 25.0
            return super().get(key, max_bytes=max_bytes)

    pipeline = Pipeline(Slow(), ledger, None, Settings(), lambda: time[0])
    assert pipeline.sweep().more
    first = set(seen)
    seen.clear()
    pipeline.sweep()
    assert first != set(seen)


def test_a_new_run_under_the_name_of_a_closed_one_is_judged_from_its_beginning() -> None:
    world = World()
    pipeline = world.pipeline()
    world.manifest()
    for seq in range(5):
        world.steps(seq, obs(seq, NAN if seq == 4 else 1.0))
    pipeline.notice(world.end(4))
    assert world.record().status is JobStatus.CLOSED
    pipeline.notice(world.manifest(run="run-2"))
    assert world.record().status is JobStatus.OPEN
    # Objects and the end of the first run still lie where the second has not written yet.
    pipeline.sweep()
    assert world.progress()["steps"] == 0
    pipeline.notice(world.steps(0, obs(0), run="run-2"))
    pipeline.notice(world.steps(1, obs(4, NAN), run="run-2"))
    assert world.progress()["steps"] == 2
    pipeline.notice(world.end(1, run="run-2"))
    assert world.record().status is JobStatus.CLOSED
    assert world.incidents() == []
    assert world.findings() == [("ExplodingTensor", 4)] * 2  # one of each run
    assert [told["run"] for told in world.events("Job Opened")] == ["run-1", "run-2"]


class _CountingObjects(MemoryObjects):
    gets = 0

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        self.gets += 1
        return super().get(key, max_bytes=max_bytes)


def test_what_an_earlier_run_left_is_not_read_over_and_over() -> None:
    objects = _CountingObjects()
    world = World(objects=objects)
    pipeline = world.pipeline()
    pipeline.notice(world.manifest())
    for seq in range(300):
        world.steps(seq, obs(seq))
    pipeline.notice(world.manifest(run="run-2"))
    world.clock += 60
    objects.gets = 0
    pipeline.sweep()
    assert objects.gets < 40


def test_what_an_earlier_run_left_does_not_make_a_gap() -> None:
    world = World()
    pipeline = world.pipeline()
    world.manifest()
    for seq in range(5):
        world.steps(seq, obs(seq))
    pipeline.notice(world.end(4))
    pipeline.notice(world.manifest(run="run-2"))
    pipeline.notice(world.steps(0, obs(0), run="run-2"))
    for _ in range(3):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    assert world.incidents() == []
    assert pipeline.notice(world.steps(1, obs(1), run="run-2")).folded == 1


def test_a_container_started_anew_after_an_interruption_is_judged_from_its_beginning() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job(stop="allow"))
    pipeline.notice(world.sagemaker_manifest())
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.notice(world.end(0, reason="stopped"))
    other = Layout((TensorInfo("conv.weight", "weights"),))
    world.sagemaker_manifest(run="run-2", layout=other)
    world.steps(0, obs(100, layout=other), run="run-2")
    world.clock += 60
    assert pipeline.sweep().folded == 1  # the notice of the manifest was lost
    assert world.record().manifest["run"] == "run-2"
    assert world.record().config["stop"] is True
    assert world.progress()["attempt"] == 2
    assert world.incidents() == []


def test_a_script_started_again_under_the_same_name_is_judged_anew_from_where_it_goes_on() -> None:
    world = World()
    pipeline = world.pipeline()
    world.manifest()
    world.steps(0, obs(0), obs(1, NAN))
    pipeline.notice(world.end(0, reason="failed"))
    assert world.record().status is JobStatus.CLOSED
    # The hook found what it wrote before: the run and the numbers go on, the steps go back.
    found = pipeline.notice(world.steps(1, obs(0), obs(1, NAN), dropped={"restarts": 1}))
    assert found.folded == 2
    assert world.record().status is JobStatus.OPEN
    for _ in range(2):
        world.clock += 60
        pipeline.sweep()  # the first start's end object is still there
    assert world.record().status is JobStatus.OPEN
    pipeline.notice(world.end(1, time=START + 100))
    assert world.record().status is JobStatus.CLOSED
    assert world.record().outcome == "finished"
    assert world.incidents() == []
    assert world.findings() == [("ExplodingTensor", 1)] * 2
    ids = [event["detail"]["metadata"]["event_id"] for event in world.events()]
    assert len(ids) == len(set(ids))


def test_a_container_that_goes_on_after_an_interruption_keeps_what_its_rules_know() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    world.steps(0, obs(0), obs(1))
    pipeline.notice(world.end(0, reason="stopped"))
    found = pipeline.notice(world.steps(1, obs(1), obs(2), dropped={"restarts": 1}))
    assert found.dropped == {}
    assert world.progress()["dropped"] == {"restarts": 1}
    assert world.progress()["steps"] == 4
    assert world.progress()["attempt"] == 1
    assert world.record().ended == {}
    assert world.incidents() == []
    world.clock += 60
    pipeline.sweep()
    assert world.record().ended == {}  # the first start's end object is still there
    pipeline.notice(world.end(1, time=START + 100))
    pipeline.close_job(training_job("Completed", "Completed"))
    assert world.record().status is JobStatus.CLOSED


@pytest.mark.parametrize("left", [3, 200])
def test_a_new_run_that_goes_on_with_the_numbers_of_the_earlier_one_is_found(left: int) -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.manifest())
    for seq in range(left):
        world.steps(seq, obs(seq))
    pipeline.ingest(JOB)
    pipeline.notice(world.manifest(run="run-2"))
    pipeline.notice(world.steps(left, obs(0), run="run-2"))
    for _ in range(2):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    assert world.progress()["steps"] == 1
    assert world.incidents() == []


def test_an_object_of_a_new_run_leads_to_its_manifest() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.manifest())
    world.manifest(run="run-2")  # its notice is late
    assert pipeline.notice(world.steps(0, obs(0), run="run-2")).folded == 1
    assert world.record().manifest["run"] == "run-2"
    assert world.incidents() == []


def test_an_earlier_runs_manifest_does_not_come_back() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.manifest())
    pipeline.notice(world.manifest(run="run-2"))
    pipeline.notice(world.manifest())
    assert world.record().manifest["run"] == "run-2"
    assert world.incidents() == ["MANIFEST 0 0"]


def test_a_sagemaker_job_that_has_ended_does_not_run_again() -> None:
    world = World()
    pipeline = world.pipeline()
    world.sagemaker_manifest()
    pipeline.open_job(training_job())
    world.steps(0, obs(0))
    world.end(0)
    pipeline.close_job(training_job("Completed", "Completed"))
    pipeline.notice(world.sagemaker_manifest(run="run-2"))
    assert world.record().status is JobStatus.CLOSED
    assert world.record().manifest["run"] == "run-1"
    assert len(world.incidents()) == 1


def test_steps_without_a_manifest_are_remembered_and_folded_when_it_comes() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    assert world.record().status is JobStatus.ANNOUNCED
    world.manifest()  # its notice is lost
    assert pipeline.sweep().folded == 1


def test_ending_a_job_nobody_knows_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        World().pipeline().end(JOB, "killed")


def test_a_later_state_of_training_is_kept() -> None:
    world = World()
    pipeline = world.pipeline()
    pipeline.open_job(training_job(secondary="Starting"))
    pipeline.open_job(replace(training_job(), instance="ml.p5.48xlarge"))
    assert world.record().training["instance"] == "ml.p5.48xlarge"
    assert world.progress()["training_since"] == START
