"""The last check before a stop, and the record of what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.pipeline.world import JOB, NAN, World, obs, training_job
from trainwarden.errors import ConflictError, NotFoundError
from trainwarden.pipeline import Pipeline, Settings
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord

STOPPED = {"outcome": "stopped", "reason": "SageMaker stopped the job"}


def faulty(world: World, **tags: str) -> Pipeline:
    """A SageMaker job whose loss is NaN, and a pipeline that may ask SageMaker."""
    world.training.add(training_job(**tags))
    world.sagemaker_manifest(nonce=tags.get("nonce", ""))
    world.steps(0, obs(0, NAN))
    pipeline = world.pipeline(asks_sagemaker=True)
    pipeline.open_job(training_job(**tags))
    return pipeline


def test_a_marked_job_with_the_verdict_may_be_stopped() -> None:
    decision = faulty(World(), stop="allow").authorize_stop(JOB, "ExplodingTensor")
    assert (decision.allowed, decision.dry_run) == (True, False)


def test_an_unmarked_job_is_never_stopped() -> None:
    assert not faulty(World()).authorize_stop(JOB, "ExplodingTensor").allowed


def test_tags_are_read_afresh() -> None:
    world = World()
    pipeline = faulty(world, stop="allow")
    world.training.add(training_job())
    assert not pipeline.authorize_stop(JOB, "ExplodingTensor").allowed


def test_a_rule_that_found_nothing_stops_nothing() -> None:
    assert not faulty(World(), stop="allow").authorize_stop(JOB, "Overfit").allowed


def test_data_of_another_training_job_stops_nothing() -> None:
    world = World()
    pipeline = faulty(world, stop="allow", nonce="secret")
    assert pipeline.authorize_stop(JOB, "ExplodingTensor").allowed
    world = World()
    faulty(world, stop="allow")
    world.training.add(training_job(stop="allow", nonce="secret"))
    decision = world.pipeline(asks_sagemaker=True).authorize_stop(JOB, "ExplodingTensor")
    assert not decision.allowed
    assert "identity" in decision.reason


def test_dry_run_is_decided_by_the_deployment() -> None:
    world = World(settings=Settings(dry_run=True))
    assert faulty(world, stop="allow").authorize_stop(JOB, "ExplodingTensor").dry_run


def test_a_process_without_sagemaker_authorizes_nothing() -> None:
    world = World()
    faulty(world, stop="allow")
    assert not world.pipeline().authorize_stop(JOB, "ExplodingTensor").allowed


def test_an_action_is_recorded_and_told_once() -> None:
    world = World()
    pipeline = faulty(world, stop="allow")
    assert pipeline.record_action(JOB, "stop", "ExplodingTensor", STOPPED) is True
    assert pipeline.record_action(JOB, "stop", "ExplodingTensor", STOPPED) is False
    (entry,) = world.entries(EntryKind.ACTION)
    assert entry.id == "stop#ExplodingTensor"
    assert entry.body["outcome"] == "stopped"
    assert [told["outcome"] for told in world.events("Action Taken")] == ["stopped"]


def test_two_rules_are_two_actions() -> None:
    world = World()
    pipeline = faulty(world)
    for rule in ("ExplodingTensor", "DeadRelu"):
        assert pipeline.record_action(JOB, "stop", rule, STOPPED)
    assert len(world.entries(EntryKind.ACTION)) == 2


class _Racing(MemoryLedger):
    """Another evaluator commits just before each commit, ``times`` times."""

    times = 0

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        if self.times > 0:
            self.times -= 1
            stored = self.load(record.job)
            assert stored is not None
            super().commit(replace(stored, version=stored.version + 1))
        super().commit(record, entries)


def test_an_action_is_recorded_on_top_of_what_others_commit_meanwhile() -> None:
    ledger = _Racing()
    world = World(ledger=ledger)
    pipeline = faulty(world, stop="allow")
    ledger.times = 3
    assert pipeline.record_action(JOB, "stop", "ExplodingTensor", STOPPED)
    ledger.times = 1_000
    with pytest.raises(ConflictError):
        pipeline.record_action(JOB, "stop", "DeadRelu", STOPPED)


def test_a_job_nobody_knows_is_an_error() -> None:
    pipeline = World().pipeline()
    with pytest.raises(NotFoundError):
        pipeline.authorize_stop("unknown", "Overfit")
    with pytest.raises(NotFoundError):
        pipeline.record_action("unknown", "stop", "Overfit", STOPPED)
