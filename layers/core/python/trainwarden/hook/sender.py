"""What one worker writes to the store, in order: manifest, steps objects, end object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from trainwarden.errors import BadInputError, KeyGrammarError
from trainwarden.model import Layout, Observation
from trainwarden.store.ports import ObjectStore
from trainwarden.wire.codec import StepsObject, encode
from trainwarden.wire.control import MAX_CONTROL_BYTES, Control
from trainwarden.wire.keys import (
    MAX_JOB_CHARS,
    EndKey,
    Key,
    ManifestKey,
    StepsKey,
    control_key,
    parse,
    steps_prefix,
)
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, End, Manifest
from trainwarden.wire.seal import is_sealed, sealed


@dataclass(frozen=True)
class Sending:
    """An object that has its number; it is put, byte for byte, until it is stored."""

    seq: int
    body: bytes
    layout: Layout


class Sender:
    """Numbers and writes the objects of one worker; every method may raise the store's errors.

    Args:
        store: Where to write.
        manifest: Without its layout, which comes with the observations.
        worker: Rank of this process; rank 0 writes the manifest.
        seal_key: What every object is sealed with; empty for no seals.
    """

    def __init__(
        self, store: ObjectStore, manifest: Manifest, worker: int, *, seal_key: bytes = b""
    ) -> None:
        self._store, self._manifest, self._worker = store, manifest, worker
        self._seal_key = seal_key
        self._written = Layout()
        self._manifest_put = False
        self._seq = 0
        self._control_seen = 0
        self._before = Control(version=0)  # what an earlier process was asked

    @property
    def job(self) -> str:
        """Name under which the job is recorded."""
        return self._manifest.job

    def resume(self, *, continues: bool) -> bool:
        """Look for an earlier run of this name; True if there is one.

        Args:
            continues: This is the same job, started again: go on with its numbers and its run.
                Else record under a name of its own: ``job-2``, ``job-3``, …
        """
        base, number = self._manifest.job, 1
        last = self._last_seq()
        while last >= 0 and not continues:
            number += 1
            suffix = f"-{number}"
            job = base[: MAX_JOB_CHARS - len(suffix)].rstrip("-") + suffix
            self._manifest = replace(self._manifest, job=job)
            last = self._last_seq()
        if last >= 0:
            self._seq = last + 1
            self._continue_run()
            self._before = self._control()
        return last >= 0 or number > 1

    def _last_seq(self) -> int:
        """Number of this worker's last object; -1 if there is none, or nobody may look."""
        last = -1
        with suppress(BadInputError):  # may write only: a job has no objects when it starts
            for text in self._store.keys(steps_prefix(self._manifest.job, self._worker)):
                with suppress(KeyGrammarError):
                    key = parse(text)
                    last = max(last, key.seq if isinstance(key, StepsKey) else -1)
        return last

    def _continue_run(self) -> None:
        """Take over run and layout of the earlier manifest, if this very job wrote it."""
        key = str(ManifestKey(self._manifest.job))
        with suppress(BadInputError):
            body = self._store.get(key, max_bytes=MAX_MANIFEST_BYTES)
            earlier = Manifest.from_bytes(body) if body else None
            ours = not self._seal_key or is_sealed(body or b"", self._seal_key, key)
            if earlier and ours and earlier.identity == self._manifest.identity:
                self._manifest = replace(self._manifest, run=earlier.run, created=earlier.created)
                self._written, self._manifest_put = earlier.layout, True

    def prepare(self, observations: tuple[Observation, ...], dropped: Mapping[str, int]) -> Sending:
        """Give observations the next number.

        Raises:
            MalformedObjectError: no object can hold them.
        """
        body = encode(
            StepsObject(
                job=self._manifest.job,
                worker=self._worker,
                seq=self._seq,
                run=self._manifest.run,
                observations=observations,
                dropped=dropped,
            ),
            sealable=bool(self._seal_key),
        )
        return Sending(self._seq, body, observations[-1].layout)

    def send(self, sending: Sending) -> None:
        """Write an object, and before it the manifest if that lacks rows of the object."""
        self._put_manifest(sending.layout)
        self._put(StepsKey(self._manifest.job, self._worker, sending.seq), sending.body)
        self._seq = sending.seq + 1

    def _put_manifest(self, layout: Layout) -> None:
        have, need = self._written.tensors, layout.tensors
        known = have is need or have[: len(need)] == need
        if self._worker or (self._manifest_put and known):
            return
        manifest = replace(self._manifest, layout=layout)
        body = manifest.to_bytes(sealable=bool(self._seal_key))
        self._put(ManifestKey(manifest.job), body)
        self._written, self._manifest_put = layout, True

    def end(self, reason: str, counters: Mapping[str, int]) -> None:
        """Write the end object."""
        self._put_manifest(self._written)
        end = End(
            job=self._manifest.job,
            worker=self._worker,
            run=self._manifest.run,
            last_seq=self._seq - 1,
            reason=reason,
            time=time.time(),
            counters=counters,
        )
        self._put(EndKey(end.job, end.worker), end.to_bytes(sealable=bool(self._seal_key)))

    def _put(self, key: Key, body: bytes) -> None:
        """Write an object, sealed for the key that it is written to."""
        name = str(key)
        self._store.put(name, sealed(body, self._seal_key, name) if self._seal_key else body)

    def advice(self) -> Control | None:
        """Return the control document if it changed, without requests made before a restart.

        Raises:
            RetryableError: the store is unreachable.
        """
        control = self._control()
        if control.version <= self._control_seen:
            return None
        self._control_seen = control.version
        return self._news(control)

    def _news(self, control: Control) -> Control:
        """Leave out what the process before this one was asked: it did that, or it is too late.

        SageMaker starts a job again by itself, which takes no stop back; a person who continues a
        run does.
        """
        known = {one.id for one in self._before.details}
        new = tuple(one for one in control.details if one.id not in known)
        again = self._manifest.sagemaker or control.stop_version > self._before.version
        stop = control.stop and (again or not self._before.stop)
        return replace(control, stop=stop, details=new)

    def _control(self) -> Control:
        """Return the control document; one that asks for nothing if there is none to be read."""
        with suppress(BadInputError):  # the role may write only, or somebody wrote nonsense
            body = self._store.get(control_key(self._manifest.job), max_bytes=MAX_CONTROL_BYTES)
            if body:
                return Control.from_bytes(body)
        return Control(version=0)
