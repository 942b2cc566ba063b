"""The vocabulary every part speaks: values only. Imports numpy and nothing else."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Json = Any  # str, int, float, bool, None, or lists and string-keyed dicts of them
S = TypeVar("S")
_NO_ROWS: IntArray = np.empty(0, dtype=np.int64)


class _Word(str, Enum):
    """A string enumeration that prints and serialises as its value."""

    def __str__(self) -> str:
        return str(self.value)


class Mode(_Word):
    """What the training loop was doing at a step."""

    TRAIN = "TRAIN"
    EVAL = "EVAL"
    PREDICT = "PREDICT"
    GLOBAL = "GLOBAL"


# Looking up a member of an enumeration costs ten times as much as a name of a module.
TRAIN, EVAL = Mode.TRAIN, Mode.EVAL


class Severity(_Word):
    """How loudly a finding is announced."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Tier(_Word):
    """``critical`` rules fire at once; ``evidence`` rules accumulate before they fire."""

    CRITICAL = "critical"
    EVIDENCE = "evidence"


class Status(_Word):
    """A rule's standing for a job, in SageMaker's words."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPED = "Stopped"


class Collection(_Word):
    """The standard collections; users may add others by name."""

    WEIGHTS = "weights"
    BIASES = "biases"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    LABELS = "labels"
    LOSSES = "losses"
    METRICS = "metrics"
    OPTIMIZER = "optimizer"
    LOOP = "loop"
    OBJECTIVE = "objective"
    BATCH = "batch"
    WINDOW = "window"
    BUFFERS = "buffers"
    HISTORY = "history"
    CAPTURE = "capture"
    CUSTOM = "custom"


@dataclass(frozen=True)
class TensorInfo:
    """What is known of a tensor for the whole job; its position in the manifest is its row.

    Attributes:
        name: Unique in the job: ``fc1.weight``, ``gradient/fc1.weight``, ``activation/relu1``,
            ``input/0``, ``label/0``, ``output/0``, or the user's own.
        collection: A ``Collection`` value or the user's own name.
        shape: Without the batch dimension for activations, inputs, outputs and labels.
        dtype: safetensors' name in lower case: ``float32``, ``bfloat16``, ``int64``, …
        module: Dotted path of the owning module, empty if there is none.
        kind: Class name of the owning module: ``Linear``, ``ReLU``, ``BatchNorm2d``, …
        depth: Position of the owning module in forward order, from 0 at the input; -1 unknown.
        trainable: False for parameters with ``requires_grad=False`` when the hook attached.
        also: Further collections that it is in, of the user's own.
    """

    name: str
    collection: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    module: str = ""
    kind: str = ""
    depth: int = -1
    trainable: bool = True
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The rows of a statistics table: ``tensors[i]`` describes row ``i``. Append-only in a job."""

    tensors: tuple[TensorInfo, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Tensor names by row."""
        return tuple(t.name for t in self.tensors)

    @cached_property
    def made(self) -> dict[Hashable, Any]:
        """What rules work out once for the layout; see ``rules._selection.once``."""
        return {}

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Row by tensor name."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def _by_collection(self) -> Mapping[str, IntArray]:
        found: dict[str, list[int]] = {}
        for row, tensor in enumerate(self.tensors):
            for name in (str(tensor.collection), *tensor.also):
                found.setdefault(name, []).append(row)
        return {name: np.array(rows, dtype=np.int64) for name, rows in found.items()}

    @cached_property
    def names_by_collection(self) -> Mapping[str, tuple[str, ...]]:
        """Tensor names of each collection, in the order of ``rows``."""
        return {c: tuple(self.names[r] for r in rows) for c, rows in self._by_collection.items()}

    @cached_property
    def collection_of(self) -> tuple[tuple[str, ...], IntArray]:
        """Names of the rows' own collections, and the position in them of each, (R,) int64."""
        names = dict.fromkeys(str(tensor.collection) for tensor in self.tensors)
        position = {name: number for number, name in enumerate(names)}
        own = [position[str(tensor.collection)] for tensor in self.tensors]
        return tuple(names), np.array(own, dtype=np.int64)

    @cached_property
    def further(self) -> frozenset[str]:
        """Names of collections that rows are in beside their own."""
        return frozenset(name for tensor in self.tensors for name in tensor.also)

    def rows(self, collection: str) -> IntArray:
        """Rows of a collection, ascending, (T,) int64; empty if there is none."""
        return self._by_collection.get(str(collection), _NO_ROWS)


class Need(NamedTuple):
    """One statistic a rule reads: every tensor of ``collection``, statistic ``stat``.

    ``stat`` is a name in ``stats.catalog``, or ``value`` for a collection of scalars.
    """

    collection: str
    stat: str


class Column(NamedTuple):
    """One statistic of the T tensors captured at one step.

    ``rows`` (T,) int64 index the layout, ``values`` (T,) float64 are in the statistic's unit.
    """

    names: tuple[str, ...]
    rows: IntArray
    values: FloatArray


class Channels(NamedTuple):
    """Activity of one ReLU-like output: of ``seen`` positions, how many were active.

    ``active`` (C,) int64 counts strictly positive elements per channel; merged by addition.
    """

    active: IntArray
    seen: int


@dataclass(frozen=True)
class Observation:
    """All statistics saved for one step, merged over the workers that sent it.

    Attributes:
        step: Global step: optimizer updates so far, from 0.
        mode: What the loop was doing.
        mode_step: The step within its mode, from 0.
        time: Seconds since the epoch, UTC, by the training container's clock.
        layout: Describes the rows of ``stats``.
        stats: (R, 32) float64, ``stats.catalog`` columns; a row not captured has NaN in ``n``.
        scalars: collection → name → value; NaN and ±inf are values.
        channels: Activation name → per-channel activity.
        labels: Label tensor name → label value → count within this step's batch.
        workers: Ranks merged into this observation.
        partial: True if a worker that should have sent this step did not.
        memo: What rules share in judging this observation: each statistic is computed once.
    """

    step: int
    mode: Mode
    mode_step: int
    time: float
    layout: Layout = field(default_factory=Layout)
    stats: FloatArray = field(default_factory=lambda: np.empty((0, 32)))
    scalars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    channels: Mapping[str, Channels] = field(default_factory=dict)
    labels: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    workers: tuple[int, ...] = (0,)
    partial: bool = False
    memo: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def present_scalars(self) -> frozenset[str]:
        """Collections of which this observation holds scalars."""
        found: frozenset[str] | None = self.memo.get("present_scalars")
        if found is None:
            found = frozenset([name for name, values in self.scalars.items() if values])
            self.memo["present_scalars"] = found
        return found

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Which rows of the layout were captured at this step, (L,) bool; not to be written."""
        found: npt.NDArray[np.bool_] | None = self.memo.get("there")
        if found is None:
            rows = len(self.layout.tensors)
            n = self.stats[:rows, 0]
            found = np.equal(n, n)  # no NaN
            if n.size < rows:
                found = np.append(found, np.zeros(rows - n.size, dtype=np.bool_))
            self.memo["there"] = found
            self.memo["all there"] = np.count_nonzero(found) == rows
        return found

    @property
    def present_tensors(self) -> frozenset[str]:
        """Collections of which this observation holds statistics of a tensor."""
        found: frozenset[str] | None = self.memo.get("present_tensors")
        if found is None:
            names, positions = self.layout.collection_of
            there = self.there
            if self.memo["all there"]:
                found = frozenset(names)
            else:
                counts = np.bincount(positions[there], minlength=len(names)).tolist()
                found = frozenset(name for name, n in zip(names, counts, strict=True) if n)
            if self.layout.further:
                found |= {name for name in self.layout.further if self.captured(name).size}
            self.memo["present_tensors"] = found
        return found

    @property
    def present(self) -> frozenset[str]:
        """Collections of which this observation holds anything."""
        found: frozenset[str] | None = self.memo.get("present")
        if found is None:
            found = self.memo["present"] = self.present_scalars | self.present_tensors
        return found

    def among(self, rows: IntArray) -> IntArray:
        """Those of ``rows`` that were captured, in the same order; not to be written into."""
        memo = self.memo
        if memo.get("all there"):
            return rows
        # Mostly one of the arrays made once for a layout; kept here, its id is not used again.
        key = id(rows)
        known: tuple[IntArray, IntArray] | None = memo.get(key)
        if known is None:
            there = self.there
            known = memo[key] = (rows, rows if memo["all there"] else rows[there[rows]])
        return known[1]

    def captured(self, collection: str) -> IntArray:
        """Rows of ``collection`` captured at this step, (T,) int64; not to be written into."""
        key = ("captured", collection)
        known: IntArray | None = self.memo.get(key)
        if known is not None:
            return known
        found = self.among(self.layout.rows(collection))
        self.memo[key] = found
        return found


@dataclass(frozen=True)
class Finding:
    """One piece of evidence that a rule produced.

    Attributes:
        step: Global step at which the rule was sure.
        tensor: Tensor or scalar name; empty when it is about the whole job.
        value: What was observed, in the unit that ``message`` names.
        limit: What it was held against.
        message: One sentence for a person, with the numbers in it.
        first_step: First bad step, ≤ ``step``.
        evidence: Further numbers, JSON-shaped.
        remedies: What to try, most likely first; empty means the rule's own list.
        confidence: From 0 to 1.
        severity: None means the rule's own.
        rule: Filled in by the engine: the rule's key in the job's configuration.
        code: Filled in by the engine: the rule's code for ever.
    """

    step: int
    tensor: str
    value: float
    limit: float
    message: str
    first_step: int
    evidence: Mapping[str, Json] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()
    confidence: float = 1.0
    severity: Severity | None = None
    rule: str = ""
    code: str = ""


@dataclass(frozen=True)
class Verdict:
    """A rule's standing for a job.

    Attributes:
        rule: Key of the rule in the job's configuration.
        code: The rule's code.
        status: SageMaker's word.
        since_step: First bad step when ``ISSUES_FOUND``, else -1.
        findings: Findings so far, recorded or only counted.
        inspected: Saved steps at which everything the rule needs was there.
        note: Why, for a person: the first finding's message, the crash, or what to capture.
        severity: Of the finding that turned it, else of the rule; None where there is no rule.
        cause: Key of the rule or set whose verdict explains this one; empty if none does.
    """

    rule: str
    code: str
    status: Status = Status.IN_PROGRESS
    since_step: int = -1
    findings: int = 0
    inspected: int = 0
    note: str = ""
    severity: Severity | None = None
    cause: str = ""

    @property
    def evaluated(self) -> bool:
        """False if the rule never saw what it needs: shown as *not evaluated*."""
        return self.inspected > 0 or self.status is not Status.NO_ISSUES_FOUND


@dataclass(frozen=True)
class RuleMeta:
    """What docs, events and configuration know of a rule. ``code`` never changes meaning.

    Attributes:
        code: Family and number, for ever: ``GRD001``.
        name: SageMaker's name where it has one: ``VanishingGradient``.
        severity: How loudly its findings are announced.
        tier: Fires at once or accumulates.
        needs: Every statistic the rule reads.
        remedies: What to try, most likely first.
        capture: How to capture what it needs, said when it inspected nothing.
        explains: Names of rules whose findings are symptoms of this one: they are told as one.
        default: Evaluated without being asked for; False for rules that need a parameter.
        sagemaker: SageMaker's documented defaults, with which the rule has SageMaker's meaning;
            None where SageMaker Debugger has no such rule.
        required: Parameters of which SageMaker asks for at least one: without it the rule is not
            among those that the profile ``sagemaker`` chooses by itself.
    """

    code: str
    name: str
    severity: Severity
    tier: Tier
    needs: tuple[Need, ...]
    remedies: tuple[str, ...]
    capture: str
    explains: tuple[str, ...] = ()
    default: bool = True
    sagemaker: Mapping[str, Json] | None = None
    required: tuple[str, ...] = ()


class Rule(Generic[S]):
    """A pure fold over observations; a subclass is a frozen dataclass, its fields the parameters.

    ``S`` is JSON-shaped: it survives ``json.loads(json.dumps(state))`` unchanged.
    """

    meta: ClassVar[RuleMeta]

    def start(self) -> S:
        """Return the state before any step was seen."""
        raise NotImplementedError

    def advance(self, state: S, obs: Observation) -> tuple[S, Sequence[Finding]]:
        """Fold one step into ``state``; same input, same output, no I/O, no clock."""
        raise NotImplementedError

    def inspects(self, obs: Observation) -> bool:
        """Say whether everything the rule needs is there; counted as ``Verdict.inspected``."""
        return all(
            need.collection
            in (obs.present_scalars if need.stat == "value" else obs.present_tensors)
            for need in self.meta.needs
        )

    def wait(self, state: S, now: float) -> tuple[S, Sequence[Finding]]:
        """Let time pass without a step; ``now`` in seconds since the epoch. Most do not care."""
        del now
        return state, ()

    def finish(self, state: S) -> tuple[S, Sequence[Finding]]:
        """Judge what is left when the job has ended. Most rules have nothing to add."""
        return state, ()
