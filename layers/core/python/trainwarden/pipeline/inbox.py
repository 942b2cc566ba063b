"""Reading a job's objects: what lies at a key, and whose it is."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from trainwarden.errors import BadInputError, KeyGrammarError, MalformedObjectError
from trainwarden.model import Layout, Observation
from trainwarden.store.ports import ObjectStore
from trainwarden.wire import codec, keys
from trainwarden.wire.codec import MAX_OBJECT_BYTES, LayoutUnknownError, StepsObject
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import MAX_END_BYTES, MAX_MANIFEST_BYTES, End, Manifest

KNOWN_JOBS = 64  # layouts kept by a warm process
STEP_LIMIT = 10**12  # keys of findings and of tensors have 12 digits
_LOOKED_AT = 16  # of them, one by one
_LATER_KEYS = 1_000  # looked through for the next object after a gap
_REMEDY = "write objects with trainwarden's hook only; the rest of the job is judged without it"


class Refused(NamedTuple):
    """A manifest or end object that is not acceptable; ``digest`` tells it from a later one."""

    error: BadInputError
    digest: str


class Found(NamedTuple):
    """What lies at the key of a steps object; nothing at all if every field is empty.

    Attributes:
        steps: The object.
        refused: Why it is not acceptable; it never will be.
        unreadable: Why it cannot be read yet: the manifest lacks its rows.
        run: Another run's name, if another run wrote it.
    """

    steps: StepsObject | None = None
    refused: BadInputError | None = None
    unreadable: str = ""
    run: str = ""

    @property
    def nothing(self) -> bool:
        """True if there is no object."""
        return self == Found()


class Inbox:
    """The objects of all jobs, with the manifests of the last few jobs kept."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()

    def known(self, job: str, run: str) -> Manifest | None:
        """Return the manifest accepted last, if it is of this run."""
        found = self._manifests.get(job)
        return found if found is not None and found.run == run else None

    def remember(self, manifest: Manifest) -> None:
        """Keep an accepted manifest."""
        self._manifests[manifest.job] = manifest
        self._manifests.move_to_end(manifest.job)
        if len(self._manifests) > KNOWN_JOBS:
            self._manifests.popitem(last=False)

    def manifest(self, job: str) -> Manifest | Refused | None:
        """Read the manifest that is there now."""
        body = b""
        try:
            got = self._objects.get(str(ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
            if got is None:
                return None
            body = got
            found = Manifest.from_bytes(body)
        except MalformedObjectError as error:
            return Refused(error, _digest(body, error))
        if found.job == job:
            return found
        wrong = MalformedObjectError(f"the manifest of {job}", f"that of {found.job}")
        return Refused(wrong, _digest(body, wrong))

    def end(self, job: str, worker: int) -> End | Refused | None:
        """Read a worker's end object."""
        body = b""
        try:
            got = self._objects.get(str(EndKey(job, worker)), max_bytes=MAX_END_BYTES)
            if got is None:
                return None
            body = got
            found = End.from_bytes(body)
        except MalformedObjectError as error:
            return Refused(error, _digest(body, error))
        if (found.job, found.worker) == (job, worker):
            return found
        what = f"that of worker {found.worker} of {found.job}"
        wrong = MalformedObjectError(f"the end object of worker {worker} of {job}", what)
        return Refused(wrong, _digest(body, wrong))

    def steps(self, key: StepsKey, run: str, layout: Layout | None) -> Found:
        """Read a steps object; ``layout`` None means that the manifest cannot be read."""
        body = b""
        try:
            got = self._objects.get(str(key), max_bytes=MAX_OBJECT_BYTES)
            if got is None:
                return Found()
            body = got
            steps = codec.decode(body, layout, key=key) if layout is not None else None
        except MalformedObjectError as error:
            return _others(body, run) or Found(refused=error)
        except LayoutUnknownError as error:
            return _others(body, run) or Found(unreadable=str(error))
        if steps is None:
            return _others(body, run) or Found(unreadable="the manifest cannot be read")
        if steps.run != run:
            return Found(run=steps.run)
        wrong = _impossible(steps.observations)
        return Found(refused=wrong) if wrong else Found(steps=steps)

    def later(self, key: StepsKey, *, itself: bool = False) -> Iterator[StepsKey]:
        """Yield the keys of the same worker's objects after ``key``, ascending, at most 1,000.

        ``itself`` includes ``key``.
        """
        prefix = keys.steps_prefix(key.job, key.worker)
        before = "" if key.seq == 0 else str(key._replace(seq=key.seq - 1))
        for i, text in enumerate(self._objects.keys(prefix, after=before if itself else str(key))):
            if i >= _LATER_KEYS:
                return
            try:
                found = keys.parse(text)
            except KeyGrammarError:
                continue
            if isinstance(found, StepsKey):
                yield found

    def after_gap(
        self,
        key: StepsKey,
        run: str,
        layout: Layout | None,
        *,
        hidden: Collection[str],
        any_will_do: bool = False,
    ) -> StepsKey | None:
        """Find the next object after a missing one, None if nothing shows that it was skipped.

        Only an acceptable object shows it, somewhere ahead: a bad one far ahead must not make the
        pipeline skip what is still to come.

        Args:
            key: Of the missing object.
            run: The job's run.
            layout: The manifest's; None if it cannot be read.
            hidden: Runs whose objects do not count.
            any_will_do: True if nothing is still to come, so that a bad object counts.
        """
        later = list(self.later(key))
        first = None
        for found in later[:_LOOKED_AT]:
            lies = self.steps(found, run, layout)
            if lies.nothing or lies.run in hidden:
                continue
            first = first or found
            if any_will_do or lies.steps is not None or lies.unreadable:
                return first
        if not hidden:
            return None
        # A run that found an earlier one's objects goes on after all of them.
        ours = bisect_left(later, True, key=lambda k: self.steps(k, run, layout).run not in hidden)
        if ours < len(later) and self.steps(later[ours], run, layout).steps is not None:
            return later[ours]
        return None


def _others(body: bytes, run: str) -> Found | None:
    """Tell whether another run wrote an object that does not fit this run's layout."""
    if not body:
        return None
    try:
        writer = codec.run_of(body)
    except MalformedObjectError:
        return None
    return Found(run=writer) if writer != run else None


def _impossible(observations: tuple[Observation, ...]) -> MalformedObjectError | None:
    """Return why a well-formed object cannot be folded, None if it can."""
    worst = max(obs.step for obs in observations)
    if worst < STEP_LIMIT:
        return None
    return MalformedObjectError(f"steps below {STEP_LIMIT}", f"step {worst}", _REMEDY)


def _digest(body: bytes, error: BadInputError) -> str:
    return hashlib.sha256(body or str(error).encode()).hexdigest()[:16]
