"""A bad day, replayed exactly: everything that can go wrong between a job and its verdict.

Several evaluators run at once. Every call of a port is a point where another of them may go on,
and where a process may die, just before or just after its effect. One seed, one story.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.unit.pipeline.world import JOB, LAYOUT, NAN, START, WIDER, World, obs, training_job
from trainwarden.errors import RetryableError
from trainwarden.merge import merge
from trainwarden.model import Mode, Observation
from trainwarden.pipeline import Ingested, Pipeline, Settings
from trainwarden.store.memory import MemoryLedger, MemoryObjects
from trainwarden.store.ports import Entry, EntryKind, JobRecord, JobStatus, Ledger

PATIENT = Settings(
    gap_deadline_s=1e9,
    training_info_deadline_s=1e9,
    closing_grace_s=1e9,
    abandoned_after_s=1e9,
    max_objects=6,
)
MAX_ROUNDS = 4_000


class Crash(BaseException):
    """The process dies: nothing may catch this."""


class Baton:
    """Runs tasks in threads, one at a time; who goes on at each point is drawn from the seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._turn: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)

    def point(self) -> None:
        """Let the others go on, perhaps."""
        own = self._turn.get(threading.get_ident())
        if own is not None:
            self._back.release()
            own.acquire()

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run tasks to their end, however they interleave."""
        alive: list[threading.Thread] = []
        turns: list[threading.Semaphore] = []
        for task in tasks:
            turn = threading.Semaphore(0)
            thread = threading.Thread(target=self._main, args=(task, turn), daemon=True)
            alive.append(thread)
            turns.append(turn)
            thread.start()
        while alive:
            i = self._rng.randrange(len(alive))
            turns[i].release()
            self._back.acquire()
            if getattr(turns[i], "over", False):
                alive.pop(i).join()
                turns.pop(i)

    def _main(self, task: Callable[[], None], turn: threading.Semaphore) -> None:
        turn.acquire()
        self._turn[threading.get_ident()] = turn
        try:
            task()
        finally:
            self._turn.pop(threading.get_ident())
            turn.over = True  # type: ignore[attr-defined]
            self._back.release()


@dataclass
class Faults:
    """Chances, each from 0 to 1, that something goes wrong."""

    crash: float = 0.03
    throttle: float = 0.03
    repeat: float = 0.4
    lose: float = 0.2
    resend: float = 0.1


@dataclass
class Weather:
    """Decides at each point who goes on and who dies; off when the storm is over."""

    rng: random.Random
    faults: Faults
    baton: Baton
    on: bool = True

    def around(self, effect: Callable[[], object]) -> object:
        """Do one call of a port, dangerously."""
        self.baton.point()
        self._strike()
        done = effect()
        self.baton.point()
        self._strike()
        return done

    def _strike(self) -> None:
        if not self.on:
            return
        if self.rng.random() < self.faults.crash / 2:
            raise Crash
        if self.rng.random() < self.faults.throttle / 2:
            raise RetryableError("throttled")


class StormyObjects(MemoryObjects):
    """The bucket, seen through the storm."""

    def __init__(self, inner: MemoryObjects, weather: Weather) -> None:
        self._inner, self._weather = inner, weather

    def get(self, key: str, *, max_bytes: int) -> bytes | None:
        found = self._weather.around(lambda: self._inner.get(key, max_bytes=max_bytes))
        assert found is None or isinstance(found, bytes)
        return found

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        found = self._weather.around(lambda: list(self._inner.keys(prefix, after=after)))
        assert isinstance(found, list)
        return iter(found)


class StormyLedger:
    """The table, seen through the storm."""

    def __init__(self, inner: Ledger, weather: Weather) -> None:
        self._inner, self._weather = inner, weather

    def load(self, job: str) -> JobRecord | None:
        found = self._weather.around(lambda: self._inner.load(job))
        assert found is None or isinstance(found, JobRecord)
        return found

    def commit(self, record: JobRecord, entries: Sequence[Entry] = ()) -> None:
        self._weather.around(lambda: self._inner.commit(record, entries))

    def entries(self, job: str, kind: EntryKind) -> Iterator[Entry]:
        return self._inner.entries(job, kind)

    def open_jobs(self) -> Iterator[str]:
        return self._inner.open_jobs()

    def jobs(self) -> Iterator[JobRecord]:
        return self._inner.jobs()


@dataclass
class Story:
    """A training run: every step in order with the ranks that saved it, and how it was written."""

    turns: list[list[Observation]]
    puts: dict[int, list[tuple[str, bytes]]]
    manifests: list[bytes]
    workers: tuple[int, ...]
    managed: bool = False
    lost: set[str] = field(default_factory=set)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable on purpose


def story(rng: random.Random, *, workers: int, steps: int, managed: bool = False) -> Story:
    """Draw a run: losses that break and recover, evaluation passes, ranks that skip steps."""
    turns: list[list[Observation]] = []
    wide_from = rng.randrange(steps + 1)
    mended = 0
    for step in range(steps):
        mode = Mode.EVAL if step % 7 == 6 else Mode.TRAIN
        bad = rng.random() < 0.2 and step - mended > 1
        mended = step if bad else mended
        ranks = [w for w in range(workers) if w == 0 or rng.random() < 0.8]
        turns.append(
            [
                obs(
                    step,
                    NAN if bad and w == ranks[-1] else 2.0 / (1 + step) + rng.random() / 10,
                    mode=mode,
                    worker=w,
                    layout=WIDER if step >= wide_from else LAYOUT,
                )
                for w in ranks
            ]
        )
    told = Story(turns, {}, [], tuple(range(workers)), managed)
    _write_down(rng, told)
    return told


def _write_down(rng: random.Random, told: Story) -> None:
    """Cut each rank's steps into objects of 1 to 4, and number them."""
    scratch = World()
    put = scratch.sagemaker_manifest if told.managed else scratch.manifest
    for layout in (LAYOUT, WIDER):
        key = put(workers=told.workers, world_size=len(told.workers), layout=layout)
        told.manifests.append(_body(scratch, key))
    turns = told.turns
    for worker in told.workers:
        own = [o for turn in turns for o in turn if o.workers == (worker,)]
        seq, puts = 0, []
        while own:
            n = rng.randint(1, 4)
            key = scratch.steps(
                seq, *own[:n], worker=worker, dropped={"queue full": rng.randint(0, 2)}
            )
            puts.append((key, _body(scratch, key)))
            own, seq = own[n:], seq + 1
        key = scratch.end(seq - 1, worker=worker)
        puts.append((key, _body(scratch, key)))
        told.puts[worker] = puts


def _body(world: World, key: str) -> bytes:
    found = world.objects.get(key, max_bytes=1 << 24)
    assert found is not None
    return found


def in_order(told: Story) -> Iterator[Observation]:
    """What every fold must equal: each step once, in order, merged over its ranks."""
    for turn in told.turns:
        yield merge([replace(o, layout=WIDER) for o in turn])


def calm(told: Story) -> World:
    """The same run on a good day: everything is there, one call reads it, nobody dies."""
    world = World(settings=replace(PATIENT, max_objects=10_000))
    world.put(f"jobs/{JOB}/manifest.tw", told.manifests[-1])
    for puts in told.puts.values():
        for key, body in puts:
            if key not in told.lost:
                world.put(key, body)
    if told.managed:
        world.pipeline().open_job(training_job())
        world.pipeline().close_job(training_job("Completed", "Completed"))
    else:
        world.pipeline().ingest(JOB)
    return world


@dataclass
class Storm:
    """Replays a story through the storm until the job is closed."""

    seed: int
    told: Story
    faults: Faults = field(default_factory=Faults)
    make_ledger: Callable[[MemoryLedger, Weather], Ledger] = lambda inner, _weather: inner
    settings: Settings = PATIENT
    evaluators: int = 3
    calls: int = 0
    crashes: int = 0
    conflicts: int = 0

    def run(self) -> World:
        """Return what is left when the storm is over."""
        rng = seeded(self.seed)
        world = World(settings=self.settings)
        weather = Weather(rng, self.faults, Baton(rng))
        ledger = self.make_ledger(world.ledger, weather)
        # A warm process keeps layouts between calls; a crash ends it.
        self._warm = [self._start(world, weather, ledger) for _ in range(self.evaluators + 1)]
        queue: list[str] = ["open", "open"] if self.told.managed else []
        left = {worker: list(puts) for worker, puts in self.told.puts.items()}
        manifests = list(self.told.manifests)
        ending = ["close", "open"] if self.told.managed else []
        for _ in range(MAX_ROUNDS):
            written = not any(left.values())
            if written:  # SageMaker tells of the end after the container's last object
                queue.extend(ending)
                ending.clear()
            weather.on = not written or bool(queue)
            rng.shuffle(queue)
            n = min(len(queue), rng.randint(1, self.evaluators))
            taken = [queue.pop() for _ in range(n)]
            tasks = [
                self._task(i, key, world, weather, ledger, queue) for i, key in enumerate(taken)
            ]
            if rng.random() < 0.05 or (written and not queue):
                world.clock += 60.0
                tasks.append(self._task(-1, "", world, weather, ledger, queue))
            if not written:
                tasks.append(lambda: self._write(world, weather, left, manifests, queue))
            weather.baton.run(tasks)
            world.clock += rng.random()
            if written and not queue and _closed(world):
                return world
        raise AssertionError(f"seed {self.seed}: not closed after {MAX_ROUNDS} rounds")

    def _write(
        self,
        world: World,
        weather: Weather,
        left: dict[int, list[tuple[str, bytes]]],
        manifests: list[bytes],
        queue: list[str],
    ) -> None:
        """Let some ranks put their next object, the manifest always before what needs it."""
        rng = weather.rng
        while manifests:
            key = f"jobs/{JOB}/manifest.tw"
            world.put(key, manifests.pop(0))
            self._tell(rng, key, queue)
            if rng.random() < 0.5:
                break
        if manifests:
            return
        for puts in left.values():
            while puts and rng.random() < 0.5:
                weather.baton.point()
                key, body = puts.pop(0)
                if key not in self.told.lost:
                    world.put(key, body)
                    self._tell(rng, key, queue)
                    if rng.random() < self.faults.resend:
                        world.put(key, body)  # the answer was lost: the hook sends it again

    def _tell(self, rng: random.Random, key: str, queue: list[str]) -> None:
        if rng.random() >= self.faults.lose:
            queue.append(key)
            while rng.random() < self.faults.repeat:
                queue.append(key)

    def _start(self, world: World, weather: Weather, ledger: Ledger) -> Pipeline:
        return world.pipeline(
            objects=StormyObjects(world.objects, weather), ledger=StormyLedger(ledger, weather)
        )

    def _task(
        self,
        slot: int,
        key: str,
        world: World,
        weather: Weather,
        ledger: Ledger,
        queue: list[str],
    ) -> Callable[[], None]:
        """One evaluator's call: what it could not do goes back to the queue."""

        def task() -> None:
            self.calls += 1
            try:
                found = self._call(self._warm[slot], key)
            except Crash:
                self.crashes += 1
                self._warm[slot] = self._start(world, weather, ledger)
                queue.extend([key] if key else [])
            except RetryableError:
                queue.extend([key] if key else [])
            else:
                self.conflicts += found.conflicts
                queue.extend([key] if key and found.more else [])

        return task

    def _call(self, pipeline: Pipeline, key: str) -> Ingested:
        if key == "open":
            return pipeline.open_job(training_job())
        if key == "close":
            return pipeline.close_job(training_job("Completed", "Completed"))
        return pipeline.notice(key) if key else pipeline.ingest(JOB, thorough=True)


def _closed(world: World) -> bool:
    found = world.ledger.load(JOB)
    return found is not None and found.status is JobStatus.CLOSED


def told(world: World) -> list[str]:
    """Everything that left through the outbox, in order: ids and payloads, without the time."""
    kept = []
    for event in world.events():
        metadata = {k: v for k, v in event["detail"]["metadata"].items() if k != "time"}
        data = {k: v for k, v in event["detail"]["data"].items() if k != "duration_s"}
        kept.append(repr((event["detail-type"], metadata, data)))
    return kept


def judged(world: World) -> dict[str, object]:
    """What must not depend on the weather."""
    record = world.record()
    progress = {k: v for k, v in record.progress.items() if k not in {"waiting", "training_since"}}
    findings = [(e.id, repr(e.body)) for e in world.entries(EntryKind.FINDING)]
    incidents = [
        (e.id, repr({k: v for k, v in e.body.items() if k != "time"}))
        for e in world.entries(EntryKind.INCIDENT)
    ]
    return {
        "watermarks": record.watermarks,
        "ended": record.ended,
        "status": record.status,
        "outcome": record.outcome,
        "progress": progress,
        "rules": repr(record.rules),
        "findings": findings,
        "incidents": incidents,
        "events": told(world),
    }


__all__ = ["START", "Crash", "Faults", "Storm", "Story", "calm", "in_order", "judged", "story"]
