"""DAT007 DataOrder: batches hold far fewer classes than shuffled data would, or are all the same.

**Why it hurts.** Fed one class after the other, a model learns the class of the moment and forgets
the others; the loss is low within a stretch and leaps at its end, and batch statistics fit nothing.
Fed the same batch again and again, it learns that by heart.

**How it is computed.** Labels of the saved training steps are counted by class (unit: labels). With
p the share of a class among all labels so far and n the labels of a batch, random batches hold one
class only with probability pⁿ, and Σ 1 - (1 - p)ⁿ classes on average. Evidence ``kind``:

* ``blocks``: ``batches`` or more batches of a single class each, in two classes or more, each with
  a probability below ``chance``, and neighbouring ones mostly of the same class;
* ``neighbours``: batches with under 0.6 times the classes expected, which nine times in ten are
  neighbours in the order of class numbers; the probability of all that under random choices of so
  many classes is below e^-``surprise``;
* ``one_class``: a single class in the first 1,000 labels, of three or more that the loss knows, and
  the model, whose output has so many, answers it with certainty: a sorted data set, or one whose
  labels are all the same;
* ``sorted_targets``: the mean of real-valued targets moves one way over eight successive steps, by
  more than four standard deviations within a batch;
* ``same_batch``: the batch, of at most 64 samples, is bit by bit the same at every one of nine
  saved steps or more, while validation passes hold twice as many and their loss is above 1.5 times
  the training loss, which has halved: a loader that is begun anew in each step. Training on the
  whole data set in each step is no such case.

**Remedy.** One iterator for a whole epoch; DataLoader(shuffle=True), or shuffle the files once;
with an IterableDataset a shuffle buffer larger than a class; DistributedSampler: set_epoch().

Not judged: tokens and pixels, several optimizers (batches of real and of generated samples).
Balanced batches, batches of few classes drawn anew each time (metric learning), rare classes and
batches of one sample are no order.

**False alarms to expect.** Tasks learned one after the other on purpose.

**Missing data.** Without labels nothing is inspected, without float inputs no batch is compared.
Classes beyond the first 200 are counted as one. The first 300 saved steps are judged.

**Source.** Exact expectation under sampling with replacement. Measured: sorted digits in batches of
32 are told at step 5; ten programs with samplers for metric learning never.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    EVAL,
    TRAIN,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules import _batch, _same_batch
from trainwarden.rules._batch import fact
from trainwarden.rules._facts import several_optimizers
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

_KEPT = 200  # classes counted one by one
_BLOCKS = 32  # classes whose batches of their own are remembered
_FEW = 0.6  # share of the classes expected
_NEIGHBOURS, _LEAST_FEW = 0.9, 5
_ONE_CLASS = 1000  # labels
_CERTAIN, _LOW = 0.99, 0.1  # accuracy; share of ln C
_STEPS = 300  # saved steps that are judged
_ROW, _FAR, _LEAST = 8, 4.0, 8  # successive differences, stds, samples in a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder(CheckedRule[Json]):
    """Fire when batches cannot have been drawn at random."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT007",
        "DataOrder",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("labels", "n"),),
        (
            "Shuffle: DataLoader(…, shuffle=True).",
            "With files or an IterableDataset: shuffle once before, or use a large shuffle buffer.",
            "With DistributedSampler: call set_epoch(epoch) in each epoch.",
        ),
        "capture labels: pass loss_fn to trainwarden.watch(), or use torch's loss functions",
        explains=(
            "BadLabels", "ClassImbalance", "Confusion", "DeadRelu", "DistributionShift",
            "ExplodingGradient", "LearningRateTooHigh", "LossNotDecreasing", "LossSpike",
            "Overfit", "Overtraining", "Collapse", "VanishingGradient",
        ),
    )  # fmt: skip

    batches: int = param(3, "Batches of a single class.", "batches", bounds=Bounds(ge=2))
    chance: float = param(1e-3, "Probability of each of them.", bounds=Bounds(gt=0, lt=0.1))
    surprise: float = param(25.0, "Of neighbouring classes.", "nats", bounds=Bounds(ge=5))

    def start(self) -> Json:
        """No label has been seen."""
        return {"order": {"saves": 0, "names": {}}, "repeats": _same_batch.begin()}

    def inspects(self, obs: Observation) -> bool:
        """Labels of a training step."""
        return obs.mode is TRAIN and (bool(_batch.labels(obs)) or _targets(obs) is not None)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge one label tensor, the first by name, and if batches are ever the same."""
        repeats = state["repeats"]
        if obs.mode is TRAIN:
            order, found = self._ordered(state["order"], obs)
            repeats = repeats and _same_batch.follow(repeats, obs)
            return {"order": order, "repeats": repeats}, found
        if obs.mode is not EVAL or repeats is None:
            return state, ()
        finding = _same_batch.repeated(repeats, obs)
        return (state, ()) if finding is None else ({**state, "repeats": None}, (finding,))

    def _ordered(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge the order of classes or targets; ``{}`` once it is judged."""
        if state == {}:
            return state, ()
        if state["saves"] >= _STEPS or several_optimizers(obs):
            return {}, ()
        name = next(iter(_batch.labels(obs)), "")
        if not name:
            return self._targets(state, obs)
        single = _batch.per_sample(obs, name)
        kept = _counted(_of("n", state, name), obs, name) if single else None
        if kept is None:
            return state, ()
        finding = self._blocks(kept, obs, name) or self._few(kept, obs, name)
        finding = finding or _one_class(kept, obs, name)
        if finding is not None:
            return {}, (finding,)
        return {"saves": state["saves"] + 1, "names": {name: kept}}, ()

    def _blocks(self, kept: Json, obs: Observation, name: str) -> Finding | None:
        """``kept["pure"]``: class → [batches that hold it alone, labels of the smallest]."""
        if len(kept["pure"]) < 2 or 2 * kept["stayed"] < kept["pairs"]:  # noqa: PLR2004 - a block ends
            return None
        total = sum(kept["n"].values())
        odd = {
            label: batches
            for label, (batches, size) in kept["pure"].items()
            if (kept["n"].get(label, 0) / total) ** size < self.chance
        }
        count = sum(odd.values())
        if len(odd) < 2 or count < self.batches:  # noqa: PLR2004 - two classes
            return None
        message = (
            f"{count} of {kept['batches']} batches hold a single class each, of {len(kept['n'])} "
            f"classes seen in {name}: the data comes in blocks"
        )
        evidence = {"kind": "blocks", "batches": kept["batches"], "single": count,
                    "classes": len(kept["n"])}  # fmt: skip
        share = count / kept["batches"]
        return Finding(obs.step, name, share, self.chance, message, kept["at"], evidence)

    def _few(self, kept: Json, obs: Observation, name: str) -> Finding | None:
        few, close, nats = kept["few"]
        if few < _LEAST_FEW or close < _NEIGHBOURS * few or nats < self.surprise:
            return None
        message = (
            f"{few} of {kept['batches']} batches hold under {_FEW:.0%} of the classes that "
            f"shuffled labels of {name} would give, and {close} of these neighbouring ones: the "
            "data is sorted"
        )
        evidence = {"kind": "neighbours", "batches": kept["batches"], "few": few, "nats": nats}
        return Finding(obs.step, name, nats, self.surprise, message, kept["at"], evidence)

    def _targets(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        target = _targets(obs)
        if target is None:
            return state, ()
        name, mean, std = target
        row = _of("seen", state, name) or {"step": -2, "seen": []}
        seen = [*row["seen"], [mean, std]] if obs.step == row["step"] + 1 else [[mean, std]]
        steps = np.sign(np.diff([one for one, _ in seen]))
        if steps.size and steps[-1] != steps[0]:
            seen = seen[-2:] if steps[-1] else seen[-1:]
        kept = {"step": obs.step, "seen": seen[-2 * _ROW :]}
        first, within = seen[0][0], float(np.mean([one for _, one in seen]))
        if len(seen) <= _ROW or not abs(mean - first) > _FAR * within > 0:
            return {"saves": state["saves"] + 1, "names": {name: kept}}, ()
        moved = abs(mean - first) / within
        message = (
            f"the mean of {name} {'falls' if mean < first else 'rises'} at each of "
            f"{len(seen) - 1} successive steps, by {moved:.3g} standard deviations within a "
            "batch: the data is sorted"
        )
        evidence = {"kind": "sorted_targets", "from": first, "to": mean}
        since = obs.step - len(seen) + 1
        return {}, (Finding(obs.step, name, moved, _FAR, message, since, evidence),)


def _of(kind: str, state: Json, name: str) -> Json | None:
    """What is kept of ``name``, if of this kind: targets may be whole numbers at times."""
    kept: Json | None = state["names"].get(name)
    return kept if kept is not None and kind in kept else None


def _counted(kept: Json | None, obs: Observation, name: str) -> Json:
    """Return the counts of all labels with this batch's added, None if it holds no class.

    ``few`` is [batches, close, nats].
    """
    old = kept or {"at": obs.step, "batches": 0, "n": {}, "pure": {}, "few": [0, 0, 0.0],
                   "pairs": 0, "stayed": 0, "last": [-2, -1, -1]}  # fmt: skip
    told = obs.labels[name]
    seen = sorted(told)
    if not seen or seen[0] < 0 or min(told.values()) < 1:  # ignored ones, or none of a class
        seen = [label for label in seen if label >= 0 and told[label] >= 1]
    if not seen:
        return None
    counts, size = _added(old["n"], told, seen)
    step, low, high = old["last"]
    pure, pairs, stayed = old["pure"], old["pairs"], old["stayed"]
    if len(seen) == 1:
        key = str(seen[0])
        if key in pure or len(pure) < _BLOCKS:
            many, least = pure.get(key, (0, size))
            pure = {**pure, key: [many + 1, min(least, size)]}
        if low == high >= 0 and obs.step == step + 1:
            pairs, stayed = pairs + 1, stayed + (low == int(key))
    last = [obs.step, seen[0], seen[-1]]
    few = _neighbours(old, counts, seen, size, obs.step)
    return {"at": old["at"], "batches": old["batches"] + 1, "n": counts, "pure": pure, "few": few,
            "pairs": pairs, "stayed": stayed, "last": last}  # fmt: skip


def _added(
    before: Mapping[str, int], told: Mapping[int, int], seen: Sequence[int]
) -> tuple[dict[str, int], int]:
    """Sums by class, those beyond the first ``_KEPT`` classes as ``rest``; size of the batch."""
    counts, size = dict(before), 0
    room = len(counts) + len(seen) <= _KEPT
    for label in seen:
        key, n = str(label), int(told[label])
        key = key if room or key in counts or len(counts) < _KEPT else "rest"
        counts[key] = counts.get(key, 0) + n
        size += n
    return counts, size


def _neighbours(
    old: Json, counts: Mapping[str, int], batch: Sequence[int], size: int, at: int
) -> Json:
    """Extend ``few`` by a batch that holds too few classes."""
    known, here = len(counts), len(batch)
    if not 0 < here <= _FEW * known or "rest" in counts:
        return old["few"]
    shares = np.array(list(counts.values())) / sum(counts.values())
    if here > _FEW * float(np.sum(1.0 - (1.0 - shares) ** size)):
        return old["few"]
    few, close, nats = old["few"]
    rank = {label: i for i, label in enumerate(sorted(int(label) for label in counts))}
    low, high = rank[batch[0]], rank[batch[-1]]
    if high - low != here - 1:
        return [few + 1, close, nats]
    nats += math.log(math.comb(known, here) / (known - here + 1))
    step, _, before = old["last"]
    if at == step + 1 and before in rank and (low - rank[before]) % known in {0, 1}:
        nats += math.log(known / 2)
    return [few + 1, close + 1, nats]


def _one_class(kept: Json, obs: Observation, name: str) -> Finding | None:
    if len(kept["n"]) > 1:
        return None
    ((label, n),) = kept["n"].items()
    facts, loss = _batch.classifier(obs), main_loss(obs)
    classes = fact(facts, "classes")
    if n < _ONE_CLASS or not 3 <= classes <= 1000 or loss is None:  # noqa: PLR2004 - see above
        return None
    certain = fact(facts, "accuracy") >= _CERTAIN and loss[1] <= _LOW * math.log(classes)
    if not certain or not _batch.answers(obs, classes):
        return None
    message = (
        f"all {n} labels seen of {name} are {label}, of {classes:.0f} classes that the loss knows: "
        "sorted data, or labels that are all the same"
    )
    evidence = {"kind": "one_class", "labels": n, "classes": classes}
    return Finding(obs.step, name, 1.0, 1 / classes, message, kept["at"], evidence, confidence=0.8)


def _targets(obs: Observation) -> tuple[str, float, float] | None:
    """Name, mean and standard deviation of real-valued targets, one a sample; None if not so."""
    row = obs.layout.row_of.get("label/0")
    if row is None or math.prod(obs.layout.tensors[row].shape) != 1:
        return None
    if not obs.layout.tensors[row].dtype.startswith(("float", "bfloat")):
        return None
    n, mean, std = (_batch.value(obs, row, s) for s in ("n", "mean", "std"))
    if not n >= _LEAST or math.isnan(mean) or math.isnan(std):
        return None
    return "label/0", mean, std
