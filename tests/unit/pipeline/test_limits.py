"""One job takes neither the others' time nor more than one item of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.unit.pipeline.world import JOB, LAYOUT, NAN, START, WIDER, World, obs, steps_object
from trainwarden.errors import TooLargeError
from trainwarden.model import Layout, Mode, Status, TensorInfo
from trainwarden.pipeline import Settings, inbox
from trainwarden.pipeline.budget import FREE
from trainwarden.store import records
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus
from trainwarden.wire.fields import dump_json, parse_json
from trainwarden.wire.keys import ManifestKey, StepsKey
from trainwarden.wire.manifest import MAX_WRITERS, Manifest

INNOCENT = "innocent"
SECOND = 1.0


@dataclass
class Slow(MemoryObjects):
    """A bucket in which each request takes a second of the world's clock."""

    world: World
    takes: float = SECOND
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def _ask(self, key: str) -> None:
        self.asked.append(key)
        self.world.clock += self.takes

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        self._ask(key)
        return super().get(key, max_bytes=max_bytes)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        self._ask(prefix)
        return super().keys(prefix, after=after)


def slow_world(takes: float = SECOND, **settings: Any) -> tuple[World, Slow]:
    world = World(settings=Settings(**settings))
    objects = Slow(world, takes)
    world.objects = objects
    return world, objects


def with_workers(count: int) -> bytes:
    """A manifest with more workers than any writer of ours would name."""
    body = parse_json(Manifest(JOB, "run-1", layout=LAYOUT, created=START).to_bytes(), "it")
    return dump_json({**body, "workers": list(range(count)), "world_size": count})


def put_innocent(world: World, count: int = 1) -> list[str]:
    """Put ``count`` jobs with one ill step each; return their names."""
    names = [f"{INNOCENT}-{i}" for i in range(count)]
    for name in names:
        body = Manifest(name, "run-1", layout=LAYOUT, created=START).to_bytes()
        world.put(str(ManifestKey(name)), body)
        world.put(str(StepsKey(name, 0, 0)), steps_object(0, [obs(0, NAN)], job=name))
    return names


def test_a_manifest_of_ten_thousand_workers_is_refused_for_a_handful_of_requests() -> None:
    world, objects = slow_world()
    key = world.put(str(ManifestKey(JOB)), with_workers(10_000))
    pipeline = world.pipeline()
    assert pipeline.notice(key).rejected == 1
    assert pipeline.notice(key).rejected == 0
    assert pipeline.ingest(JOB, thorough=True).rejected == 0
    assert len(objects.asked) <= 6
    (told,) = world.events("Data Rejected")
    assert "at most 64 workers" in told["expected"]
    assert told["found"] == "10000 workers"


def test_the_most_workers_a_manifest_may_name_are_all_heard() -> None:
    world = World()
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    for worker in range(MAX_WRITERS):
        world.steps(0, obs(0, worker=worker), worker=worker)
    assert world.pipeline().ingest(JOB).folded == 1


@pytest.mark.parametrize("thorough", [False, True])
def test_requests_that_find_nothing_end_a_call_in_time(*, thorough: bool) -> None:
    world, objects = slow_world(budget_s=20.0)
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    world.pipeline().ingest(JOB)
    objects.asked.clear()
    world.clock += 100
    before = world.clock
    found = world.pipeline().ingest(JOB, thorough=thorough)
    assert found.more
    assert len(objects.asked) == 20
    assert world.clock - before == 20.0


def test_a_call_without_time_makes_no_more_than_the_requests_of_one_step() -> None:
    world, objects = slow_world()
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    assert world.pipeline().ingest(JOB, until=START - 1).more
    assert len(objects.asked) == FREE


def test_a_call_ends_after_its_requests_even_if_they_take_no_time() -> None:
    world, objects = slow_world(0.0, max_requests=50)
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    assert world.pipeline().ingest(JOB).more
    assert len(objects.asked) == 50


def test_what_a_call_did_before_its_time_was_over_stands() -> None:
    world, objects = slow_world(budget_s=20.0)
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    for worker in range(MAX_WRITERS):
        world.end(-1, worker=worker)
    ended = []
    for _ in range(5):
        world.pipeline().ingest(JOB)
        ended.append(len(world.record().ended))
    assert ended == [19, 38, 57, MAX_WRITERS, MAX_WRITERS]
    assert len(objects.asked) <= 100


def test_a_slow_job_takes_its_share_of_a_sweep_and_the_others_are_judged() -> None:
    world, objects = slow_world(0.05, sweep_s=20.0, share_s=2.0)
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    pipeline = world.pipeline()
    names = put_innocent(world, 3)
    for name in (JOB, *names):
        pipeline.notice(str(ManifestKey(name)))
        world.put(str(StepsKey(name, 0, 1)), steps_object(1, [obs(1, NAN)], job=name))
    objects.takes = 1.0
    world.clock = START + 3600.0
    swept = pipeline.sweep()
    assert (swept.jobs, swept.failed) == (4, {})
    for name in names:
        record = world.ledger.load(name)
        assert record is not None
        assert record.progress["steps"] == 2


def test_jobs_that_took_long_come_last_in_the_next_sweep() -> None:
    world, objects = slow_world(sweep_s=20.0, share_s=2.0)
    world.manifest(workers=tuple(range(MAX_WRITERS)), world_size=MAX_WRITERS)
    pipeline = world.pipeline()
    names = put_innocent(world, 2)
    for name in (JOB, *names):
        pipeline.notice(str(ManifestKey(name)))
    orders = []
    for minute in range(4):
        world.clock = START + 3600.0 + 60.0 * minute
        objects.asked.clear()
        pipeline.sweep()
        jobs = [key.split("/")[1] for key in objects.asked]
        orders.append(list(dict.fromkeys(jobs)))
    assert all(order[-1] == JOB for order in orders[1:])


def test_a_manifest_is_parsed_again_only_when_its_bytes_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.manifest()
    pipeline = world.pipeline()
    pipeline.ingest(JOB)
    parsed: list[int] = []
    parse = Manifest.from_bytes

    def spy(body: bytes) -> Manifest:
        parsed.append(len(body))
        return parse(body)

    monkeypatch.setattr("trainwarden.pipeline.inbox.Manifest.from_bytes", spy)
    world.clock += 100
    pipeline.ingest(JOB, thorough=True)
    assert parsed == []
    wider = str(ManifestKey(JOB))
    world.put(wider, Manifest(JOB, "run-1", layout=WIDER, created=START).to_bytes())
    parsed.clear()
    pipeline.notice(wider)
    assert len(parsed) == 1
    assert world.record().manifest["tensors"] == len(WIDER.tensors)


def test_a_process_keeps_no_more_tensors_than_fit_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "KNOWN_TENSORS", 5)
    known = inbox.Inbox(MemoryObjects())
    for name in ("a", "b", "c"):
        known.remember(inbox.Kept(Manifest(name, "run-1", layout=WIDER)))
    assert [known.known(n, "run-1", sealed="") is not None for n in "abc"] == [False, True, True]
    junk = {f"k{i}": "x" * 1_000 for i in range(100)}
    known.remember(inbox.Kept(Manifest("c", "run-1", rules=junk, environment=junk, capture=junk)))
    kept = known.known("c", "run-1", sealed="")
    assert kept is not None
    assert len(kept.manifest.to_bytes()) < 1_000
    large = Layout(tuple(TensorInfo(f"t{i}", "weights", (2,)) for i in range(9)))
    known.remember(inbox.Kept(Manifest("large", "run-1", layout=large)))
    assert known.known("large", "run-1", sealed="") is not None
    assert known.known("c", "run-1", sealed="") is None


class Small(MemoryLedger):
    """A table whose items are small."""

    most = 20_000

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        size = len(records.record_to_text(record))
        if size > self.most:
            raise TooLargeError(f"a record of at most {self.most} bytes", f"{size} bytes")
        super().commit(record, entries)


def floods(step: int, names: int, mode: Mode = Mode.TRAIN) -> Any:
    losses = {f"{i:04d}" + "x" * 900: 1.0 for i in range(names)}
    return replace(obs(step, mode=mode), scalars={"losses": {"loss": 1.0, **losses}})


@pytest.mark.parametrize("part", ["environment", "capture", "rules"])
def test_a_manifest_full_of_what_people_read_makes_no_large_record(part: str) -> None:
    world = World()
    world.ledger = Small()
    junk = {f"k{i}": "0123456789" * 100 for i in range(900)}
    world.manifest(**{part: junk})
    world.steps(0, obs(0, NAN))
    assert world.pipeline().ingest(JOB).folded == 1
    assert world.findings() == [("ExplodingTensor", 0)]
    (told,) = world.events("Job Opened")
    large = [p for p in told["problems"] if "at most 32768 bytes" in str(p)]
    assert len(large) == (part == "rules")


def test_a_record_that_is_too_large_loses_its_largest_rule_and_is_committed() -> None:
    world, ledger = World(), Small()
    world.ledger = ledger
    world.manifest()
    world.steps(0, floods(0, 900), floods(1, 900))
    world.steps(1, obs(2, NAN))
    world.end(1)
    found = world.pipeline().ingest(JOB)
    assert (found.folded, found.closed, found.crashed) == (3, True, 1)
    lost = world.verdicts()["Overfit"]
    assert lost.status is Status.ERROR
    assert "one record" in lost.note
    assert world.verdicts()["ExplodingTensor"].status is Status.ISSUES_FOUND
    assert ("Overfit", 2) in world.findings()
    assert world.record().status is JobStatus.CLOSED


def test_a_record_that_is_too_large_without_any_rule_is_refused_with_its_size() -> None:
    world, ledger = World(), Small()
    ledger.most = 10
    world.ledger = ledger
    world.manifest()
    with pytest.raises(TooLargeError, match="at most 10 bytes"):
        world.pipeline().ingest(JOB)


def test_a_flood_of_names_leaves_a_record_that_any_table_takes() -> None:
    world = World()
    world.manifest()
    for seq in range(4):
        mode = Mode.EVAL if seq % 2 else Mode.TRAIN
        world.steps(seq, floods(seq, 900, mode), dropped={f"{seq}-{i}": 1 for i in range(900)})
    assert world.pipeline().ingest(JOB).folded == 4
    assert len(records.record_to_text(world.record())) < 300_000
    assert all(v.status is not Status.ERROR for v in world.verdicts().values())
    assert list(world.ledger.entries(JOB, EntryKind.INCIDENT)) == []
