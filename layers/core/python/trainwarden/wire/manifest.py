"""``manifest.tw`` and ``end/*.tw``: what is known of a run as a whole, as strict JSON.

The layout is append-only: a later manifest of the same run repeats the rows and may add some.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainwarden.errors import KeyGrammarError
from trainwarden.model import Json, Layout, TensorInfo
from trainwarden.wire.fields import MAX_INT, Fields, dump_json, malformed, parse_json
from trainwarden.wire.keys import MAX_WORKER, job_name
from trainwarden.wire.names import MAX_COLLECTION_CHARS, MAX_KIND_CHARS, MAX_NAME_CHARS
from trainwarden.wire.seal import PLACEHOLDER, check_seal

WIRE_VERSION = 1
MAX_MANIFEST_BYTES = 8 * 1024 * 1024
MAX_END_BYTES = 64 * 1024
MAX_TENSORS = 50_000
MAX_WRITERS = 64  # the reader asks for an object of each of them at every call
MAX_RUN_CHARS = 128
_MAX_DIMENSIONS = 64
_MAX_ALSO = 64  # collections of one tensor
_NO_DEPTH = -1


def layout_hash(tensors: Sequence[TensorInfo]) -> str:
    """Return 16 hex digits that change with any property of any row, or their order."""
    rows = [_tensor_json(tensor) for tensor in tensors]
    return hashlib.sha256(dump_json(rows)).hexdigest()[:16]


def tensor_bytes(tensor: TensorInfo) -> int:
    """Return what a row adds to the size of a manifest."""
    return len(dump_json(_tensor_json(tensor))) + 1


def _tensor_json(tensor: TensorInfo) -> dict[str, Json]:
    found: dict[str, Json] = {
        "name": tensor.name,
        "collection": str(tensor.collection),
        "shape": [int(size) for size in tensor.shape],
        "dtype": tensor.dtype,
    }
    if tensor.module:
        found["module"] = tensor.module
    if tensor.kind:
        found["kind"] = tensor.kind
    if tensor.depth != _NO_DEPTH:
        found["depth"] = int(tensor.depth)
    if not tensor.trainable:
        found["trainable"] = False
    if tensor.also:
        found["also"] = list(tensor.also)
    return found


def _tensor(fields: Fields) -> TensorInfo:
    return TensorInfo(
        name=fields.text("name", MAX_NAME_CHARS),
        collection=fields.text("collection", MAX_COLLECTION_CHARS),
        shape=tuple(fields.integers("shape", _MAX_DIMENSIONS)),
        dtype=fields.text("dtype", 32),
        module=fields.text("module", MAX_NAME_CHARS) if "module" in fields else "",
        kind=fields.text("kind", MAX_KIND_CHARS) if "kind" in fields else "",
        depth=fields.integer("depth", _NO_DEPTH) if "depth" in fields else _NO_DEPTH,
        trainable=fields.flag("trainable") if "trainable" in fields else True,
        also=tuple(fields.texts("also", _MAX_ALSO, MAX_COLLECTION_CHARS))
        if "also" in fields
        else (),
    )


def layout_json(layout: Layout) -> dict[str, Json]:
    """Return a layout as ``read_layout`` takes it."""
    return {"tensors": [_tensor_json(tensor) for tensor in layout.tensors]}


def read_layout(fields: Fields) -> Layout:
    """Read the rows of a table.

    Raises:
        MalformedObjectError: anything that ``layout_json`` does not make.
    """
    layout = Layout(tuple(_tensor(item) for item in fields.objects("tensors", MAX_TENSORS)))
    if len(layout.row_of) != len(layout.tensors):
        raise malformed("a manifest with unique tensor names", "a name that occurs twice")
    return layout


def _checked_job(fields: Fields) -> str:
    try:
        return job_name(fields.text("job", 256))
    except KeyGrammarError as error:
        raise malformed(error.expected, error.found) from error


def check_wire(fields: Fields, what: str) -> None:
    """Refuse a wire version that this reader does not know."""
    wire = fields.integer("wire", 0, MAX_INT)
    if wire != WIRE_VERSION:
        raise malformed(
            f"{what} of wire version {WIRE_VERSION} (deploy a trainwarden as new as the hook)",
            f"wire version {wire}",
        )


def _document(values: Mapping[str, Json], *, sealable: bool) -> bytes:
    """Write a document; the place for the seal comes first, where nothing can pass for it."""
    body = dump_json(dict(values))
    return b"".join((b"{", PLACEHOLDER, b",", body[1:])) if sealable else body


@dataclass(frozen=True)
class Manifest:
    """Everything known of a run when its first step is saved.

    Attributes:
        job: Job name, as in the key.
        run: Fresh for each start of the training script; every steps object repeats it.
        identity: ``wire.identity.identity`` of the run.
        framework: Name and version: ``torch 2.13.0``.
        world_size: Processes of the job, whether they write or not.
        workers: Ranks that write steps objects, ascending, at most 64.
        layout: Rows of every statistics table.
        rules: Rule configuration that the script passed to ``watch``, JSON.
        capture: What the hook captures and how often, JSON.
        environment: What a person may want to know: Python, devices, versions, JSON.
        sagemaker: True if SageMaker started the process.
        created: Seconds since the epoch, UTC.
        wire: Wire version.
    """

    job: str
    run: str
    identity: str = ""
    framework: str = ""
    world_size: int = 1
    workers: tuple[int, ...] = (0,)
    layout: Layout = field(default_factory=Layout)
    rules: Json = field(default_factory=dict)
    capture: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, Json] = field(default_factory=dict)
    sagemaker: bool = False
    created: float = 0.0
    wire: int = WIRE_VERSION

    def _json(self) -> dict[str, Json]:
        return {
            "wire": self.wire,
            "job": self.job,
            "run": self.run,
            "identity": self.identity,
            "framework": self.framework,
            "world_size": self.world_size,
            "workers": list(self.workers),
            "rules": self.rules,
            "capture": dict(self.capture),
            "environment": dict(self.environment),
            "sagemaker": self.sagemaker,
            "created": float(self.created),
        }

    def to_bytes(self, *, sealable: bool = False) -> bytes:
        """Return the object's bytes; equal manifests give equal bytes.

        Args:
            sealable: With a place for ``wire.seal.sealed``.

        Raises:
            MalformedObjectError: something that no reader would take.
        """
        tensors = [_tensor_json(tensor) for tensor in self.layout.tensors]
        body = _document({**self._json(), "tensors": tensors}, sealable=sealable)
        Manifest.from_bytes(body)
        return body

    def summary(self) -> dict[str, Json]:
        """Return what a ledger keeps: small, so without what only people read, and the layout.

        The size and the hash of the layout are there; ``rules`` are as large as they are. ``stop``
        is there, and true, if the script lets its loop be ended; of a SageMaker job its tag says
        that.
        """
        tensors, found = self.layout.tensors, self._json()
        if not self.sagemaker and self.capture.get("stop") == "allow":
            found["stop"] = True
        for name in ("capture", "environment"):
            del found[name]
        return {**found, "tensors": len(tensors), "layout": layout_hash(tensors)}

    @classmethod
    def from_bytes(cls, body: bytes) -> Manifest:
        """Read a manifest.

        Raises:
            MalformedObjectError: anything else than what ``to_bytes`` writes.
        """
        if len(body) > MAX_MANIFEST_BYTES:
            raise malformed(f"a manifest of at most {MAX_MANIFEST_BYTES} bytes", str(len(body)))
        fields = Fields(parse_json(body, "manifest"), "manifest")
        check_wire(fields, "a manifest")
        check_seal(fields)
        return cls(
            job=_checked_job(fields),
            run=fields.text("run", MAX_RUN_CHARS),
            identity=fields.text("identity", 128),
            framework=fields.text("framework", 256),
            world_size=fields.integer("world_size", 1, 10_000_000),
            workers=_workers(fields, fields.integer("world_size", 1, 10_000_000)),
            layout=read_layout(fields),
            rules=fields.json("rules"),
            capture=fields.mapping("capture"),
            environment=fields.mapping("environment"),
            sagemaker=fields.flag("sagemaker"),
            created=fields.number("created"),
        )


def _workers(fields: Fields, world_size: int) -> tuple[int, ...]:
    ranks = fields.integers("workers", MAX_WORKER + 1, 0, MAX_WORKER)
    most = min(world_size, MAX_WRITERS)
    if len(ranks) > most:
        expected = f"a manifest with at most {most} workers that write, of {world_size} processes"
        raise malformed(expected, f"{len(ranks)} workers")
    if not ranks or sorted(set(ranks)) != ranks:
        raise malformed("a manifest with ascending worker ranks", repr(ranks))
    return tuple(ranks)


@dataclass(frozen=True)
class End:
    """The last object of a worker.

    Attributes:
        job: Job name, as in the key.
        worker: Rank, as in the key.
        run: The run that ends, as in the manifest.
        last_seq: Number of the last steps object, -1 if it wrote none.
        reason: ``finished``, ``failed`` or ``stopped``.
        time: Seconds since the epoch, UTC.
        counters: What was dropped or retried, by name.
    """

    job: str
    worker: int
    run: str
    last_seq: int
    reason: str = "finished"
    time: float = 0.0
    counters: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self, *, sealable: bool = False) -> bytes:
        """Return the object's bytes; equal values give equal bytes.

        Args:
            sealable: With a place for ``wire.seal.sealed``.

        Raises:
            MalformedObjectError: something that no reader would take.
        """
        body = _document(
            {
                "wire": WIRE_VERSION,
                "job": self.job,
                "worker": self.worker,
                "run": self.run,
                "last_seq": self.last_seq,
                "reason": self.reason,
                "time": float(self.time),
                "counters": dict(self.counters),
            },
            sealable=sealable,
        )
        End.from_bytes(body)
        return body

    @classmethod
    def from_bytes(cls, body: bytes) -> End:
        """Read an end object.

        Raises:
            MalformedObjectError: anything else than what ``to_bytes`` writes.
        """
        if len(body) > MAX_END_BYTES:
            raise malformed(f"an end object of at most {MAX_END_BYTES} bytes", str(len(body)))
        fields = Fields(parse_json(body, "end object"), "end object")
        check_wire(fields, "an end object")
        check_seal(fields)
        return cls(
            job=_checked_job(fields),
            worker=fields.integer("worker", 0, MAX_WORKER),
            run=fields.text("run", MAX_RUN_CHARS),
            last_seq=fields.integer("last_seq", -1, 10**10 - 1),
            reason=fields.text("reason", 64),
            time=fields.number("time"),
            counters=fields.counters("counters"),
        )
