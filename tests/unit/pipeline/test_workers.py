"""Several ranks: one step each, in order, whoever is late, silent, gone or back."""

from __future__ import annotations

import pytest

from tests.unit.pipeline.world import JOB, NAN, World, obs
from trainwarden.engine import Engine
from trainwarden.model import Mode, Observation
from trainwarden.pipeline import Settings
from trainwarden.store.ports import JobStatus

Seen = list[tuple[int, str, tuple[int, ...], bool]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the engine was given: step, mode, ranks, partial."""
    found: Seen = []
    advance = Engine.advance

    def spy(self: Engine, state: object, observation: Observation) -> object:
        found.append(
            (observation.step, str(observation.mode), observation.workers, observation.partial)
        )
        return advance(self, state, observation)

    monkeypatch.setattr(Engine, "advance", spy)
    return found


def two_workers(**settings: float) -> World:
    world = World(settings=Settings(**settings))  # type: ignore[arg-type]
    world.manifest(workers=(0, 1), world_size=2)
    return world


def test_a_step_waits_until_every_rank_has_sent_it(seen: Seen) -> None:
    world = two_workers()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0), obs(1)))
    assert seen == []
    pipeline.notice(world.steps(0, obs(0, worker=1), worker=1))
    assert seen == [(0, "TRAIN", (0, 1), False)]


def test_ranks_that_save_other_steps_are_not_waited_for_at_those(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(0), obs(1), obs(2), obs(4))
    world.steps(0, obs(0, worker=1), obs(2, worker=1), obs(3, worker=1), worker=1)
    world.end(0)
    world.pipeline().notice(world.end(0, worker=1))
    assert [(step, ranks) for step, _, ranks, _ in seen] == [
        (0, (0, 1)),
        (1, (0,)),
        (2, (0, 1)),
        (3, (1,)),
        (4, (0,)),
    ]
    assert not any(partial for *_, partial in seen)


def test_modes_of_one_step_are_folded_apart_and_in_the_order_they_were_saved(seen: Seen) -> None:
    world = two_workers()
    for worker in (0, 1):
        world.steps(
            0,
            obs(5, worker=worker),
            obs(5, worker=worker, mode=Mode.EVAL),
            obs(6, worker=worker),
            worker=worker,
        )
        world.end(0, worker=worker)
    world.pipeline().ingest(JOB)
    assert [(step, mode) for step, mode, *_ in seen] == [(5, "TRAIN"), (5, "EVAL"), (6, "TRAIN")]


def test_one_rank_that_alone_evaluates_does_not_hold_up_the_others(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(5), obs(5, mode=Mode.EVAL), obs(6))
    world.steps(0, obs(5, worker=1), obs(6, worker=1), worker=1)
    world.end(0)
    world.end(0, worker=1)
    world.pipeline().ingest(JOB)
    assert [(step, ranks) for step, _, ranks, _ in seen] == [(5, (0, 1)), (5, (0,)), (6, (0, 1))]


def test_a_nan_on_one_rank_is_found() -> None:
    world = two_workers()
    world.steps(0, obs(0))
    world.steps(0, obs(0, NAN, worker=1), worker=1)
    world.pipeline().ingest(JOB)
    assert world.findings() == [("ExplodingTensor", 0)]


def test_a_rank_that_never_comes_is_waived_at_the_deadline_and_steps_are_partial(
    seen: Seen,
) -> None:
    world = two_workers()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0), obs(1)))
    world.clock += 60
    pipeline.sweep()
    assert world.record().gap_since == world.clock
    world.clock += world.settings.gap_deadline_s - 1
    pipeline.sweep()
    assert seen == []
    world.clock += 1
    pipeline.sweep()
    assert seen == [(0, "TRAIN", (0,), True), (1, "TRAIN", (0,), True)]
    pipeline.notice(world.steps(1, obs(2)))
    assert seen[-1] == (2, "TRAIN", (0,), True)


def test_a_rank_that_comes_back_is_told_what_came_too_late_and_is_heard_again(seen: Seen) -> None:
    world = two_workers()
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0), obs(1)))
    for _ in range(2):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    pipeline.notice(world.steps(0, *(obs(step, worker=1) for step in range(3)), worker=1))
    assert world.incidents() == ["LATE 1 0"]
    pipeline.notice(world.steps(1, obs(2), obs(3)))
    pipeline.notice(world.steps(1, obs(3, worker=1), worker=1))
    assert [entry for entry in seen if entry[0] >= 2] == [
        (2, "TRAIN", (0, 1), False),
        (3, "TRAIN", (0, 1), False),
    ]


def test_a_step_that_lost_a_rank_with_a_bad_object_is_partial(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(0), obs(1), obs(2))
    world.put(f"jobs/{JOB}/steps/0001/0000000000.tw", b"junk")
    world.steps(1, obs(1, worker=1), obs(2, worker=1), worker=1)
    world.pipeline().ingest(JOB)
    assert [partial for *_, partial in seen] == [True, False, False]


def test_a_rank_that_ended_early_is_not_waited_for(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(0), obs(1), obs(2))
    world.steps(0, obs(0, worker=1), worker=1)
    pipeline = world.pipeline()
    pipeline.notice(world.end(0, worker=1))
    assert [(step, partial) for step, _, _, partial in seen] == [(0, False), (1, False), (2, False)]
    assert world.record().status is JobStatus.OPEN
    pipeline.notice(world.end(0))
    assert world.record().status is JobStatus.CLOSED


def test_a_rank_that_wrote_nothing_says_so_and_is_done(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(0))
    world.end(0)
    world.pipeline().notice(world.end(-1, worker=1))
    assert len(seen) == 1
    assert world.record().status is JobStatus.CLOSED
    assert world.incidents() == []


def test_a_gap_in_one_rank_is_lost_at_the_deadline_and_the_rank_stays(seen: Seen) -> None:
    world = two_workers()
    world.steps(0, obs(0), obs(1), obs(2))
    pipeline = world.pipeline()
    pipeline.notice(world.steps(1, obs(2, worker=1), worker=1))
    for _ in range(2):
        world.clock += world.settings.gap_deadline_s
        pipeline.sweep()
    assert world.incidents() == ["LOST 1 0"]
    assert seen == [
        (0, "TRAIN", (0,), True),
        (1, "TRAIN", (0,), True),
        (2, "TRAIN", (0, 1), False),
    ]


def test_steps_that_wait_for_a_rank_are_no_stall() -> None:
    world = two_workers(gap_deadline_s=10_000.0)
    pipeline = world.pipeline()
    pipeline.notice(world.steps(0, obs(0)))
    pipeline.notice(world.steps(0, obs(0, worker=1), worker=1))
    pipeline.notice(world.steps(1, obs(1)))
    world.clock += 5_000
    pipeline.sweep()
    assert world.findings() == []


def test_a_rank_that_goes_back_after_a_rollback_is_folded_as_it_saved(seen: Seen) -> None:
    world = two_workers()
    for worker in (0, 1):
        steps = [obs(step, worker=worker) for step in (7, 8, 5, 6)]
        world.steps(0, *steps, worker=worker)
        world.end(0, worker=worker)
    world.pipeline().ingest(JOB)
    assert [(step, ranks) for step, _, ranks, _ in seen] == [(s, (0, 1)) for s in (7, 8, 5, 6)]


def test_the_worst_reason_of_all_ranks_is_the_jobs_outcome() -> None:
    world = two_workers()
    world.end(-1, reason="finished")
    world.pipeline().notice(world.end(-1, worker=1, reason="failed"))
    assert world.record().outcome == "failed"
