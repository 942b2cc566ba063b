"""A bucket, a ledger and a clock of one's own: what the pipeline's tests are written with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainwarden.model import Json, Layout, Mode, Observation, TensorInfo, Verdict
from trainwarden.pipeline import Pipeline, Settings, verdicts
from trainwarden.store.memory import MemoryLedger, MemoryObjects, MemoryTrainingJobs
from trainwarden.store.ports import Entry, EntryKind, JobRecord, Ledger, ObjectStore, TrainingJob
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.identity import identity
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import End, Manifest
from trainwarden.wire.seal import seal_key, sealed

JOB = "resnet-1"
START = 1_700_000_000.0
NAN = math.nan
LAYOUT = Layout((TensorInfo("fc.weight", "weights", (2, 3), module="fc", kind="Linear"),))
WIDER = Layout((*LAYOUT.tensors, TensorInfo("fc.bias", "biases", (2,), module="fc")))
ARN = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{JOB}"


def obs(
    step: int,
    loss: float = 1.0,
    *,
    mode: Mode = Mode.TRAIN,
    worker: int = 0,
    layout: Layout = LAYOUT,
    time: float | None = None,
) -> Observation:
    """One saved step with a loss; its statistics hold rows that were not captured."""
    return Observation(
        step=step,
        mode=mode,
        mode_step=step,
        time=START + step if time is None else time,
        layout=layout,
        stats=np.full((len(layout.tensors), 32), np.nan),
        scalars={"losses": {"loss": loss}},
        workers=(worker,),
    )


def steps_object(
    seq: int,
    observations: Sequence[Observation],
    *,
    worker: int = 0,
    job: str = JOB,
    run: str = "run-1",
    dropped: Mapping[str, int] | None = None,
    sealable: bool = False,
) -> bytes:
    found = StepsObject(job, worker, seq, run, tuple(observations), dropped or {})
    return encode(found, sealable=sealable)


def training_job(
    status: str = "InProgress", secondary: str = "Training", **tags: str
) -> TrainingJob:
    named = {f"trainwarden:{name}": value for name, value in tags.items()}
    return TrainingJob(JOB, ARN, status, secondary, named, {"lr": "0.1"}, instance="ml.g5.xlarge")


@dataclass
class World:
    """One job's bucket, ledger and clock, and the pipeline over them.

    ``seal`` is the key with which what is put is sealed, once the job is known to be SageMaker's.
    """

    objects: MemoryObjects = field(default_factory=MemoryObjects)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    training: MemoryTrainingJobs = field(default_factory=MemoryTrainingJobs)
    clock: float = START
    settings: Settings = field(default_factory=Settings)
    seal: bytes = b""

    def pipeline(
        self,
        *,
        objects: ObjectStore | None = None,
        ledger: Ledger | None = None,
        asks_sagemaker: bool = False,
    ) -> Pipeline:
        """A pipeline of a process that has just started."""
        return Pipeline(
            objects or self.objects,
            ledger or self.ledger,
            self.training if asks_sagemaker else None,
            self.settings,
            lambda: self.clock,
        )

    def manifest(self, **fields: Any) -> str:
        """Put a manifest; return its key."""
        known: dict[str, Any] = {"layout": LAYOUT, "created": START, **fields}
        found = Manifest(known.pop("job", JOB), known.pop("run", "run-1"), **known)
        return self.write(str(ManifestKey(found.job)), found.to_bytes(sealable=bool(self.seal)))

    def sagemaker_manifest(self, **fields: Any) -> str:
        """Put a manifest as the hook of a SageMaker job does; what is put from now on is sealed."""
        nonce = fields.pop("nonce", "")
        self.seal = seal_key(ARN, {"lr": "0.1"}, nonce)
        return self.manifest(sagemaker=True, identity=identity(ARN, {"lr": "0.1"}, nonce), **fields)

    def steps(
        self, seq: int, *observations: Observation, worker: int = 0, run: str = "run-1", **more: Any
    ) -> str:
        """Put a steps object; return its key."""
        more = {"sealable": bool(self.seal), **more}
        body = steps_object(seq, observations, worker=worker, run=run, **more)
        return self.write(str(StepsKey(JOB, worker, seq)), body)

    def end(
        self,
        last_seq: int,
        *,
        worker: int = 0,
        run: str = "run-1",
        reason: str = "finished",
        time: float = START,
    ) -> str:
        """Put an end object; return its key."""
        found = End(JOB, worker, run, last_seq, reason, time)
        return self.write(str(EndKey(JOB, worker)), found.to_bytes(sealable=bool(self.seal)))

    def write(self, key: str, body: bytes) -> str:
        """Put what the job itself writes; return its key."""
        return self.put(key, sealed(body, self.seal, key) if self.seal else body)

    def put(self, key: str, body: bytes) -> str:
        self.objects.put(key, body)
        return key

    def record(self) -> JobRecord:
        found = self.ledger.load(JOB)
        assert found is not None
        return found

    def progress(self) -> Mapping[str, Json]:
        return self.record().progress

    def entries(self, kind: EntryKind) -> list[Entry]:
        return list(self.ledger.entries(JOB, kind))

    def incidents(self) -> list[str]:
        """``KIND worker seq`` of each incident."""
        found = [entry.body for entry in self.entries(EntryKind.INCIDENT)]
        return [f"{body['kind']} {body['worker']} {body['seq']}" for body in found]

    def findings(self) -> list[tuple[str, int]]:
        """Rule and step of each finding, in order of steps."""
        found = [entry.body for entry in self.entries(EntryKind.FINDING)]
        return [(body["rule"], body["step"]) for body in found]

    def events(self, detail_type: str | None = None) -> list[dict[str, Json]]:
        """Everything told, in order of commits; or ``data`` of one kind."""
        told = [e for entry in self.entries(EntryKind.OUTBOX) for e in entry.body["events"]]
        if detail_type is None:
            return told
        return [e["detail"]["data"] for e in told if e["detail-type"] == detail_type]

    def verdicts(self) -> dict[str, Verdict]:
        return {verdict.rule: verdict for verdict in verdicts(self.record())}


def advancing(clock: Callable[[], float], by: float) -> Callable[[], float]:
    """A clock that moves by ``by`` seconds each time it is read."""
    passed = 0.0

    def read() -> float:
        nonlocal passed
        passed += by
        return clock() + passed

    return read
