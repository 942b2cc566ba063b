"""Whatever the weather, a run is judged as if each step had been folded once and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.pipeline.storm import (
    PATIENT,
    Crash,
    Faults,
    Storm,
    StormyLedger,
    StormyObjects,
    Story,
    Weather,
    calm,
    in_order,
    judged,
    seeded,
    story,
)
from tests.unit.pipeline.world import JOB, World
from trainwarden.config import JobConfig
from trainwarden.engine import Engine, Fold
from trainwarden.model import Finding
from trainwarden.store.memory import MemoryLedger
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus, Ledger

SEEDS = range(100)
ROUGH = Faults(crash=0.08, throttle=0.02, repeat=0.7, lose=0.1)


def _story(seed: int) -> Story:
    rng = seeded(seed)
    return story(rng, workers=1 + seed % 3, steps=rng.randint(10, 26))


def _replayed(told: Story, config: JobConfig) -> tuple[Fold, list[Finding]]:
    """Fold the run in order, without the pipeline."""
    engine = Engine(config.rules)
    state, findings = engine.start(), list[Finding]()
    for obs in in_order(told):
        fold = engine.advance(state, obs)
        state = fold.state
        findings += fold.findings
    return engine.finish(state, stopped=False), findings


@pytest.mark.parametrize("seed", SEEDS)
def test_every_storm_ends_as_the_calm(seed: int) -> None:
    told = _story(seed)
    assert judged(Storm(seed, told).run()) == judged(calm(told))


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_so_does_every_storm_over_a_sagemaker_job(seed: int) -> None:
    told = story(seeded(seed), workers=1 + seed % 2, steps=12, managed=True)
    world = Storm(seed, told).run()
    assert judged(world) == judged(calm(told))
    assert len(world.events("Job Opened")) == len(world.events("Job Closed")) == 1


@pytest.mark.parametrize("seed", SEEDS[::5])
def test_the_calm_is_the_in_order_fold(seed: int) -> None:
    told = _story(seed)
    world = calm(told)
    fold, findings = _replayed(told, JobConfig.from_json(world.record().config))
    assert repr(world.record().rules) == repr(fold.state)
    assert sorted(world.findings()) == sorted((f.rule, f.step) for f in findings)
    assert world.progress()["steps"] == len(told.turns)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    steps=st.integers(1, 12),
    faults=st.builds(
        Faults,
        crash=st.floats(0, 0.15),
        throttle=st.floats(0, 0.15),
        repeat=st.floats(0, 0.7),
        lose=st.floats(0, 1.0),
    ),
)
def test_any_weather_ends_as_the_calm(seed: int, workers: int, steps: int, faults: Faults) -> None:
    told = story(seeded(seed), workers=workers, steps=steps)
    assert judged(Storm(seed, told, faults).run()) == judged(calm(told))


def test_the_storms_are_storms() -> None:
    storms = [Storm(seed, _story(seed)) for seed in SEEDS[:20]]
    findings = [len(storm.run().findings()) for storm in storms]
    assert sum(storm.crashes for storm in storms) > 30
    assert sum(storm.conflicts for storm in storms) > 30
    assert sum(findings) > 50


def _lost(seed: int) -> Story:
    """A run of which some objects never come, not the last of each rank."""
    told = _story(seed)
    rng = seeded(seed)
    for puts in told.puts.values():
        told.lost |= {key for key, _ in puts[:-2] if rng.random() < 0.3}
    return told


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_what_never_comes_is_given_up_the_same_way_in_any_weather(seed: int) -> None:
    told = _lost(seed)
    calm_world = calm(told)
    calm_world.settings = replace(PATIENT, abandoned_after_s=1e12)
    calm_pipeline = calm_world.pipeline()
    while calm_world.record().status is not JobStatus.CLOSED:
        calm_world.clock += PATIENT.gap_deadline_s
        calm_pipeline.ingest(JOB, thorough=True)
    # Patience must not end before the last object is written.
    storm = Storm(seed, told, settings=replace(PATIENT, gap_deadline_s=2_000.0))
    got, wanted = judged(storm.run()), judged(calm_world)
    assert bool(told.lost) == bool(wanted["incidents"])
    assert _without_reasons(got) == _without_reasons(wanted)


def _without_reasons(found: dict[str, object]) -> dict[str, object]:
    """Reasons name the deadline, which differs here."""
    return {k: v for k, v in found.items() if k not in {"events", "incidents"}} | {
        "incidents": [id_ for id_, _ in found["incidents"]],  # type: ignore[attr-defined]
        "events": sorted(e.partition(", 'reason'")[0] for e in found["events"]),  # type: ignore[attr-defined]
    }


class _Wrapped:
    """A ledger that does something wrong on purpose in ``commit``."""

    def __init__(self, inner: MemoryLedger, weather: Weather) -> None:
        self.inner, self.weather = inner, weather
        self.load, self.entries = inner.load, inner.entries
        self.open_jobs, self.jobs = inner.open_jobs, inner.jobs

    def version(self) -> int:
        stored = self.inner.load(JOB)
        return stored.version if stored else 0


class BlindWrite(_Wrapped):
    """Writes whatever another evaluator has committed meanwhile, under the next free number."""

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        version = self.version() + 1
        told = (e for e in entries if e.kind is EntryKind.OUTBOX)
        kept = [e for e in entries if e.kind is not EntryKind.OUTBOX]
        kept += [replace(e, id=f"{version:010d}") for e in told]
        self.inner.commit(replace(record, version=version), kept)


class WatermarkFirst(_Wrapped):
    """Says that objects are folded, and only then writes what they brought."""

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        before = self.inner.load(JOB) or JobRecord(JOB)
        marked = replace(before, watermarks=record.watermarks, version=record.version)
        self.inner.commit(marked)
        self.weather.around(lambda: None)
        self.inner.commit(replace(record, version=record.version + 1), entries)


class DualWrite(_Wrapped):
    """Commits first, and only then tells anybody."""

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        self.inner.commit(record, [e for e in entries if e.kind is not EntryKind.OUTBOX])
        self.weather.around(lambda: None)
        told = [e for e in entries if e.kind is EntryKind.OUTBOX]
        self.inner.commit(replace(record, version=self.version() + 1), told)


@pytest.mark.parametrize("broken", [BlindWrite, WatermarkFirst, DualWrite])
def test_a_ledger_broken_on_purpose_is_seen(broken: type[_Wrapped]) -> None:
    differ = 0
    for seed in SEEDS[:12]:
        told = _story(seed)

        def make(inner: MemoryLedger, weather: Weather) -> Ledger:
            found: Ledger = broken(inner, weather)  # type: ignore[assignment]
            return found

        try:
            got: object = judged(Storm(seed, told, ROUGH, make_ledger=make, evaluators=6).run())
        except AssertionError:  # it never closed
            got = None
        differ += got != judged(calm(told))
    assert differ >= 3


def test_folding_what_arrives_without_order_is_seen_even_if_duplicates_are_dropped() -> None:
    differ = 0
    for seed in SEEDS[:12]:
        told = _story(seed)
        config = JobConfig.from_json(calm(told).record().config)
        observations = list(in_order(told))
        arrived = seeded(seed).sample(observations, len(observations))
        engine = Engine(config.rules)
        state = engine.start()
        for obs in arrived:
            state = engine.advance(state, obs).state
        differ += repr(engine.finish(state, stopped=False).state) != repr(
            _replayed(told, config)[0].state
        )
    assert differ == 12


class _Fuse:
    """Dies at one point of one call."""

    def __init__(self, at: int) -> None:
        self.at, self.point = at, -1

    def around(self, effect: Callable[[], object]) -> object:
        self._burn()
        done = effect()
        self._burn()
        return done

    def _burn(self) -> None:
        self.point += 1
        if self.point == self.at:
            raise Crash


def _short() -> Story:
    return story(seeded(7), workers=2, steps=9)


def _points() -> int:
    """Points at which a process that folds the short story may die."""
    fuse, world = _Fuse(-1), World(settings=PATIENT)
    _fold_all(world, _short(), fuse)
    return fuse.point + 1


def _fold_all(world: World, told: Story, fuse: _Fuse) -> None:
    world.put(f"jobs/{JOB}/manifest.tw", told.manifests[-1])
    for puts in told.puts.values():
        for key, body in puts:
            world.put(key, body)
    weather: Weather = fuse  # type: ignore[assignment]
    pipeline = world.pipeline(
        objects=StormyObjects(world.objects, weather), ledger=StormyLedger(world.ledger, weather)
    )
    while pipeline.ingest(JOB).more:
        pass


@pytest.mark.parametrize("point", range(_points()))
def test_a_death_at_any_port_call_before_or_after_its_effect_changes_nothing(point: int) -> None:
    told, world = _short(), World(settings=PATIENT)
    with pytest.raises(Crash):
        _fold_all(world, told, _Fuse(point))
    _fold_all(world, told, _Fuse(-1))
    assert judged(world) == judged(calm(told))
