"""Reading a job's objects: what lies at a key, and whose it is."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from trainwarden.config import bounded
from trainwarden.errors import BadInputError, KeyGrammarError, MalformedObjectError
from trainwarden.model import Layout, Observation
from trainwarden.pipeline.sealing import not_sealed
from trainwarden.store.ports import ObjectStore
from trainwarden.wire import codec, keys
from trainwarden.wire.codec import MAX_OBJECT_BYTES, LayoutUnknownError, StepsObject
from trainwarden.wire.keys import EndKey, ManifestKey, StepsKey
from trainwarden.wire.manifest import MAX_END_BYTES, MAX_MANIFEST_BYTES, End, Manifest
from trainwarden.wire.seal import fingerprint, is_sealed

KNOWN_JOBS = 64  # layouts kept by a warm process
KNOWN_TENSORS = 100_000  # rows of all of these, at about 2 KB each
STEP_LIMIT = 10**12  # keys of findings and of tensors have 12 digits
_LOOKED_AT = 16  # of them, one by one
_LATER_KEYS = 1_000  # looked through for the next object after a gap
_REMEDY = "write objects with trainwarden's hook only; the rest of the job is judged without it"


class Refused(NamedTuple):
    """A manifest or end object that is not acceptable; ``digest`` tells it from a later one.

    ``forged`` is true if it lacks the seal that it must carry.
    """

    error: BadInputError
    digest: str
    forged: bool = False


class Kept(NamedTuple):
    """A well-formed manifest; ``checked`` and ``sealed`` are fingerprints of keys.

    Attributes:
        manifest: The manifest.
        checked: Of the key that its seal was checked with; empty if none was known.
        sealed: The same if the seal was right; empty if not.
        digest: Of its bytes.
    """

    manifest: Manifest
    checked: str = ""
    sealed: str = ""
    digest: str = ""


class Found(NamedTuple):
    """What lies at the key of a steps object; nothing at all if every field is empty.

    Attributes:
        steps: The object.
        refused: Why it is not acceptable; it never will be.
        unreadable: Why it cannot be read yet: the manifest lacks its rows.
        run: Another run's name, if another run wrote it.
        forged: Digest of an object that lacks the seal it must carry: the run did not write it,
            and what the run does write will take its place.
    """

    steps: StepsObject | None = None
    refused: BadInputError | None = None
    unreadable: str = ""
    run: str = ""
    forged: str = ""

    @property
    def nothing(self) -> bool:
        """True if there is no object."""
        return self == Found()


class Inbox:
    """The objects of all jobs, with the manifests of the last few jobs kept."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._manifests: OrderedDict[str, Kept] = OrderedDict()

    def known(self, job: str, run: str, *, sealed: str) -> Kept | None:
        """Return the manifest accepted last, if it is of this run and sealed as it must be."""
        found = self._manifests.get(job)
        if found is None or found.manifest.run != run or sealed not in {"", found.sealed}:
            return None
        return found

    def remember(self, kept: Kept) -> None:
        """Keep an accepted manifest, without what may be large and is read by people only."""
        job, rules = kept.manifest.job, bounded(kept.manifest.rules)
        small = replace(kept.manifest, environment={}, capture={}, rules=rules)
        self._manifests[job] = kept._replace(manifest=small)
        self._manifests.move_to_end(job)
        sizes = [len(known.manifest.layout.tensors) for known in self._manifests.values()]
        while len(sizes) > 1 and (len(sizes) > KNOWN_JOBS or sum(sizes) > KNOWN_TENSORS):
            del sizes[0]
            self._manifests.popitem(last=False)

    def manifest(self, job: str, *, seal: bytes) -> Kept | Refused | None:
        """Read the manifest that is there now; ``seal`` is the key to check its seal with."""
        body = b""
        try:
            got = self._objects.get(str(ManifestKey(job)), max_bytes=MAX_MANIFEST_BYTES)
            if got is None:
                return None
            body, known = got, self._manifests.get(job)
            digest = hashlib.sha256(body).hexdigest()
            # Large ones take a second to read, and a sweep looks each minute.
            same = known is not None and known.digest == digest
            found = known.manifest if known and same else Manifest.from_bytes(body)
        except MalformedObjectError as error:
            return Refused(error, _digest(body, error))
        if found.job == job:
            checked = fingerprint(seal) if seal else ""
            right = bool(seal) and is_sealed(body, seal, str(ManifestKey(job)))
            return Kept(found, checked, checked if right else "", digest)
        wrong = MalformedObjectError(f"the manifest of {job}", f"that of {found.job}")
        return Refused(wrong, _digest(body, wrong))

    def end(self, job: str, worker: int, *, seal: bytes) -> End | Refused | None:
        """Read a worker's end object; it must be sealed with ``seal`` unless that is empty."""
        body, name = b"", str(EndKey(job, worker))
        try:
            got = self._objects.get(name, max_bytes=MAX_END_BYTES)
            if got is None:
                return None
            body = got
            found = End.from_bytes(body)
        except MalformedObjectError as error:
            if seal and not is_sealed(body, seal, name):
                return Refused(not_sealed("an end object"), _digest(body, error), forged=True)
            return Refused(error, _digest(body, error))
        if seal and not is_sealed(body, seal, name):
            forged = not_sealed("an end object")
            return Refused(forged, _digest(body, forged), forged=True)
        if (found.job, found.worker) == (job, worker):
            return found
        what = f"that of worker {found.worker} of {found.job}"
        wrong = MalformedObjectError(f"the end object of worker {worker} of {job}", what)
        return Refused(wrong, _digest(body, wrong))

    def steps(  # noqa: PLR0911 - one a case
        self, key: StepsKey, run: str, layout: Layout | None, *, seal: bytes = b""
    ) -> Found:
        """Read a steps object.

        Args:
            key: Where it lies.
            run: The job's run.
            layout: The manifest's; None means that it cannot be read.
            seal: Key of the seal that it must carry; empty for none.
        """
        body = b""
        try:
            got = self._objects.get(str(key), max_bytes=MAX_OBJECT_BYTES)
            if got is None:
                return Found()
            body = got
            if seal and not is_sealed(body, seal, str(key)):
                return Found(forged=hashlib.sha256(body).hexdigest()[:16])
            steps = codec.decode(body, layout, key=key) if layout is not None else None
        except MalformedObjectError as error:
            if seal and not body:  # too large to be read, and larger than the hook writes
                return Found(forged=_digest(body, error))
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
        seal: bytes = b"",
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
            seal: Key of the seal without which an object does not count; empty for none.
        """
        later = list(self.later(key))
        first = None
        for found in later[:_LOOKED_AT]:
            lies = self.steps(found, run, layout, seal=seal)
            if lies.nothing or lies.forged or lies.run in hidden:
                continue
            first = first or found
            if any_will_do or lies.steps is not None or lies.unreadable:
                return first
        if not hidden:
            return None

        # A run that found an earlier one's objects goes on after all of them.
        def is_ours(at: StepsKey) -> bool:
            return self.steps(at, run, layout, seal=seal).run not in hidden

        ours = bisect_left(later, True, key=is_ours)
        if ours < len(later) and self.steps(later[ours], run, layout, seal=seal).steps is not None:
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
