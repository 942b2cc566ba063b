"""GRD003 MissingGradient: layers that should be trained get no gradient at all.

**Why it hurts.** A layer without a gradient stays at its random start. The rest of the network is
trained around it, and the result is as good as that start happens to be.

**How it is computed.** Over ``patience`` saved training steps in a row; evidence.kind says what it
is:

* *frozen_output_layer*: the last weight matrix has requires_grad=False and still holds its random
  start, in a network that is trained otherwise. Random start: at least 64 elements spread evenly,
  std x sqrt(3) ÷ max |w| within 5 % of 1 (unit: 1), as torch's own initialisation leaves them.
  Trained matrices have heavier tails, 0.3 to 0.7. The matrix must be what the loss is computed of:
  as many outputs as there are classes, or as the model puts out. No weight after it or in its own
  module may be trainable;
* *all_frozen*: the optimizer holds the model's tensors, and none of them requires a gradient;
* *no_gradient*: backward() reaches not one of the tensors that the optimizer is to move;
* *graph_cut*: the first trainable matrices up to some depth never get a gradient while all deeper
  ones do, they are in the optimizer, and they hold their random start or the loss has lost less
  than ``max_fall`` of its start after ``min_steps`` steps;
* *no_gradient_layer*: some other layers, at least ``share`` of the trainable matrices, never get a
  gradient though they are in the optimizer and run, and the loss has not fallen as above.

**Remedy.** Set requires_grad=True for layers that are new; look for .detach(), .data, .item(),
torch.no_grad(), argmax and rebuilt tensors between the layer and the loss.

**False alarms to expect.** Random output layers that are fixed on purpose.

**Missing data.** Layers the forward pass does not enter are not looked at, nor are sparse
gradients. Without the collections loop and gradients only *frozen_output_layer* is looked for.

**Source.** Uniform within ±1/sqrt(fan_in): torch.nn.Linear and Conv reset_parameters. "Every
trainable tensor gets a gradient" and "the output layer is trainable" are invariants of UMLAUT,
TheDeepChecker and TrainCheck. Measured: heads trained for 100 steps and more stay under 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trainwarden.model import (
    TRAIN,
    Finding,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    TensorInfo,
    Tier,
)
from trainwarden.rules._facts import functions, loop, rests, skipped, suspicions
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.rules._selection import gradient_of, once
from trainwarden.stats.catalog import INDEX

_N, _MIN, _MAX, _SHIFT, _D, _D2 = (
    INDEX[c] for c in ("n", "min", "max", "shift", "sum_d", "sum_d2")
)
_EVEN, _EVEN_TOLERANCE, _EVEN_ELEMENTS = 1.0, 0.05, 64
_BINARY = 2
_SLOW = frozenset({"graph_cut", "no_gradient_layer"})
_TOLD = {
    "frozen_output_layer": (
        "the output layer {name} has requires_grad=False and still holds its random start"
    ),
    "all_frozen": "the optimizer holds the model's tensors and not one of them requires a gradient",
    "no_gradient": "backward() has reached none of the {held:.0f} tensors the optimizer is to move",
    "graph_cut": (
        "the first {bare} of {total} trainable weight matrices, up to {name}, get no gradient, "
        "all after them do: the graph is cut there"
    ),
    "no_gradient_layer": (
        "{bare} of {total} trainable weight matrices that the forward pass uses get no gradient, "
        "{name} among them"
    ),
}
_REMEDIES = {
    "frozen_output_layer": ("Set requires_grad=True for the new output layer.",),
    "all_frozen": ("Set requires_grad=True for what is to be trained.",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingGradient(CheckedRule[Json]):
    """Fire when layers that should be trained get no gradient."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "GRD003",
        "MissingGradient",
        Severity.ERROR,
        Tier.CRITICAL,
        (
            Need("weights", "abs_max"),
            Need("gradients", "abs_max"),
            Need("loop", "value"),
            Need("losses", "value"),
        ),
        (
            "Look for .detach(), .data, .item() and torch.no_grad() between layer and loss.",
            "Compute the loss of the model's own output, not of a tensor rebuilt from it.",
            "Freeze what is to rest before training: requires_grad=False.",
        ),
        "capture the collections weights, gradients and loop; trainwarden.watch() does by default",
        explains=(
            "LearningRateTooLow",
            "LossNotDecreasing",
            "PoorWeightInitialization",
            "UnchangedTensor",
            "VanishingGradient",
            "WeightUpdateRatio",
        ),
    )

    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    min_steps: int = param(
        50, "Steps before layers that are not at their start are told.", "steps",
        bounds=Bounds(ge=0),
    )  # fmt: skip
    max_fall: float = param(
        0.3, "A run that lost this share of its starting loss learns.", bounds=Bounds(gt=0, le=1)
    )
    share: float = param(
        0.3, "Share of the matrices without a gradient that is ill.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing is missing yet."""
        return {"kept": {}, "told": False, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """Weights of a training step."""
        there = obs.captured("weights").size > 0 and not rests(obs, "gradients")
        return obs.mode is TRAIN and there

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend what is missing; tell the first kind that lasted."""
        if obs.mode is not TRAIN or state["told"] or skipped(obs) or rests(obs, "gradients"):
            return state, ()
        loss = follow(state["loss"], obs)
        if loop(obs)["stepped"] == 0:
            return {**state, "loss": loss}, ()
        ill = dict(self._kinds(obs))
        kept = suspicions(state["kept"], obs.step, ill)
        state = {"kept": kept, "told": False, "loss": loss}
        for kind, (since, count) in kept.items():
            rows, name = ill[kind]
            if count < self.patience:
                continue
            at_start = kind == "graph_cut" and bool(rows.size) and _even(obs, int(rows[0]))
            if kind in _SLOW and not at_start:
                stuck = not fall(loss) >= self.max_fall
                if obs.step - since < self.min_steps or not stuck:
                    continue
            return {**state, "kept": {}, "told": True}, [
                self._finding(obs, kind, rows, name, (since, count))
            ]
        return state, ()

    def _kinds(self, obs: Observation) -> Iterator[tuple[str, tuple[IntArray, str]]]:
        """What is missing at this step: kind → (rows, name of one)."""
        none = np.empty(0, dtype=np.int64)
        row = _frozen_head(obs)
        if row >= 0:
            yield "frozen_output_layer", (none, obs.layout.names[row])
        known = loop(obs)
        own, bare = known["parameters"], known["parameters_without_gradient"]
        held, foreign = known["optimizer_tensors"], known["optimizer_tensors_foreign"]
        if own == 0 and held - foreign >= 1:
            yield "all_frozen", (none, "")
        if not bare >= 1 or known["gradients_discarded"] >= 1:
            return
        if own >= 1 and bare >= held - foreign >= 1:
            yield "no_gradient", (none, "")
            return
        rows = obs.among(_executed(obs.layout))
        missing = _without_gradient(obs, rows)
        count = int(np.count_nonzero(missing))
        if not 0 < count < rows.size or count > bare:
            return
        ill = rows[missing]
        if bool(missing[:count].all()):
            yield "graph_cut", (ill, obs.layout.names[int(ill[-1])])
        elif count >= self.share * rows.size:
            yield "no_gradient_layer", (ill, obs.layout.names[int(ill[0])])

    def _finding(
        self, obs: Observation, kind: str, rows: IntArray, name: str, lasted: tuple[int, int]
    ) -> Finding:
        since, count = lasted
        held = loop(obs)["optimizer_tensors"]
        total = int(_executed(obs.layout).size)
        why = _TOLD[kind].format(name=name, held=held, bare=int(rows.size), total=total)
        evidence: dict[str, Json] = {"kind": kind, "saved_steps": count}
        if rows.size:
            names = [obs.layout.names[row] for row in rows[:8].tolist()]
            evidence |= {"tensors": names, "without_gradient": int(rows.size), "trainable": total}
        message = f"at {count} saved steps in a row since step {since} {why}"
        value = float(rows.size or count)
        confidence = 0.8 if kind == "no_gradient_layer" else 1.0
        remedies = _REMEDIES.get(kind, ())
        return Finding(obs.step, name, value, 0.0, message, since, evidence, remedies, confidence)


def _executed(layout: Layout) -> IntArray:
    """Trainable matrices, embeddings too, of modules that were entered, from input to output."""
    return once(layout, "executed matrices", _executed_matrices)


def _executed_matrices(layout: Layout) -> IntArray:
    found = [
        (layout.tensors[row].depth, row)
        for row in layout.rows("weights").tolist()
        if layout.tensors[row].trainable
        and len(layout.tensors[row].shape) > 1
        and layout.tensors[row].depth >= 0
    ]
    return np.array([row for _, row in sorted(found)], dtype=np.int64)


def _without_gradient(obs: Observation, rows: IntArray) -> npt.NDArray[np.bool_]:
    gradients = gradient_of(obs.layout)[rows]
    known = gradients >= 0  # a gradient that is not to be captured is not missing
    gradients[~known | (gradients >= obs.stats.shape[0])] = 0
    missing: npt.NDArray[np.bool_] = known & np.isnan(obs.stats[gradients, 0])
    return missing


def _frozen_head(obs: Observation) -> int:
    """Row of the output layer if it is frozen at its random start, else -1."""
    row = once(obs.layout, "frozen head", _last_is_frozen)
    if row < 0 or row >= obs.stats.shape[0] or not _even(obs, row):
        return -1
    gradient = gradient_of(obs.layout)[row]
    thawed = 0 <= gradient < obs.stats.shape[0] and not math.isnan(obs.stats[gradient, 0])
    outputs = obs.layout.tensors[row].shape[0]
    return row if not thawed and outputs in _wanted(obs) else -1


def _wanted(obs: Observation) -> set[int]:
    """How many outputs the last layer has: one for each class, or for each of the model's."""
    classes = {facts["classes"] for facts in functions(obs).values() if "classes" in facts}
    if classes:
        counts = {int(c) for c in classes if math.isfinite(c)}
        return counts | {1} if _BINARY in counts else counts  # two classes may be one logit
    labels = [found for name, found in obs.labels.items() if name.startswith("label")]
    put_out = [obs.layout.tensors[row] for row in obs.captured("outputs").tolist()]
    if any(len(found) > 1 for found in labels) and put_out:
        return {side for tensor in put_out for side in tensor.shape}
    return set()


def _last_is_frozen(layout: Layout) -> int:
    """Row of the last matrix if it is frozen and nothing after or around it is trainable."""
    weights = [(layout.tensors[row].depth, row) for row in layout.rows("weights").tolist()]
    matrices = [
        (depth, row) for depth, row in weights if depth >= 0 and len(layout.tensors[row].shape) > 1
    ]
    if not matrices:
        return -1
    depth, row = max(matrices)
    last: int = row
    head = layout.tensors[row]
    trained = [layout.tensors[other] for _, other in weights if layout.tensors[other].trainable]
    biases = layout.rows("biases").tolist()
    at_work = bool(trained) or any(layout.tensors[other].trainable for other in biases)
    if head.trainable or head.kind.startswith("Embedding") or not at_work:
        return -1
    for other in trained:
        around = bool(other.module) and f"{head.module}.".startswith(f"{other.module}.")
        if not 0 <= _depth(layout, other) < depth or around:
            return -1
    return last


def _depth(layout: Layout, tensor: TensorInfo) -> int:
    """Depth of a tensor's module, else of the module around it that was entered; -1 unknown."""
    if tensor.depth >= 0:
        return tensor.depth
    return max(
        (t.depth for t in layout.tensors if t.module and tensor.module.startswith(f"{t.module}.")),
        default=-1,
    )


def _even(obs: Observation, row: int) -> bool:
    """Say whether a matrix's elements lie evenly between ± its largest, as at a random start."""
    stats = obs.stats[row]
    n, top = float(stats[_N]), float(max(stats[_MAX], -stats[_MIN]))
    if not n >= _EVEN_ELEMENTS or not top > 0 or stats[1] + stats[2] + stats[3] > 0:
        return False
    offset = float(stats[_D]) / n
    square = float(stats[_D2]) / n - offset * offset
    if not 0 < square < math.inf or abs(float(stats[_SHIFT]) + offset) > 0.2 * top:
        return False
    return abs(math.sqrt(3 * square) / top - _EVEN) <= _EVEN_TOLERANCE
