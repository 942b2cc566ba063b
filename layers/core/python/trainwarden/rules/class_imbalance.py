"""DAT001 ClassImbalance: some classes have far fewer labels than others.

**Why it hurts.** A network that always answers with the frequent class has a low loss and a high
accuracy and is useless for the rare one.

**How it is computed.** Labels are counted per class over the training steps (unit: labels). Once
``samples`` were seen, and at least 20 for each class, the rule compares the largest class with the
smallest. So that few labels do not look like few members, both counts are moved two standard
deviations of a Poisson count towards each other:

    ratio = (max - 2 √max) ÷ (min + 2 √(min + 1))

It fires when ratio is above ``threshold_imbalance``. Each label tensor is judged once, and not if
the first quarter of its labels differs from the rest by more than chance (two-sample χ² over its
mean by five standard deviations): labels that drift (a policy's own actions, data in order) are no
property of the data set. Labels below 0 (ignore_index) do not count.

With more than ``many`` classes (tokens, ages) frequencies differ by nature: there it fires only
when one class has more than ``dominance`` of all labels. Labels with a value for every position and
few classes (segmentation) are mostly background: there that share must be above 0.98.

**Remedy.** Weight the loss (weight=, pos_weight=), resample (WeightedRandomSampler), focal loss;
judge by per-class recall. Exclude padding with ignore_index.

Not judged: labels of a loss that weights its classes (scalar ``weighted`` of the labels).

**False alarms to expect.** Imbalance that a loss of one's own already answers.

**Missing data.** Without integer labels nothing is inspected. At most 64 label tensors are counted,
those that come first, by name, and 2,000 classes of them at a time; those beyond are not judged.

**Source.** SageMaker Debugger's ClassImbalance: ratio 10 after 500 samples, as the plain ratio. Its
threshold_misprediction needs predictions, which are not captured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import (
    Collection,
    Finding,
    Json,
    Mode,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_PER_CLASS = 20
_DENSE = 0.98  # background of segmentation masks
_SURE = 5.0  # standard deviations
_EARLY = 4  # the first labels that the rest is compared with are one in so many
_MAX_CLASSES = 1000  # kept in the state; beyond that labels are ids, not classes
_MAX_KEPT = 2000  # classes of all label tensors that are being counted
_MAX_NAMES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassImbalance(CheckedRule[Json]):
    """Fire when one class has many times the labels of another."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT001",
        "ClassImbalance",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("labels", "n"),),
        (
            "Weight the loss: CrossEntropyLoss(weight=…), BCEWithLogitsLoss(pos_weight=…).",
            "Resample: torch.utils.data.WeightedRandomSampler.",
            "Judge the model by per-class recall, not by accuracy.",
            "If the frequent class is padding, exclude it with ignore_index.",
        ),
        "capture class labels: pass loss_fn to trainwarden.watch(), whose second input are "
        "labels of an integer type; a regression has none",
    )

    threshold_imbalance: float = param(10.0, "Largest over smallest class.", bounds=Bounds(gt=1))
    samples: int = param(500, "Labels before they are judged.", "labels", bounds=Bounds(ge=1))
    labels_regex: tuple[str, ...] = param((), "Label tensors to look at.", pattern=True)
    many: int = param(
        20, "More classes than this differ by nature.", "classes", bounds=Bounds(ge=2)
    )
    dominance: float = param(
        0.6, "Share of one class among many that is ill.", bounds=Bounds(gt=0, lt=1)
    )

    def start(self) -> Json:
        """No label has been seen."""
        return {}

    def inspects(self, obs: Observation) -> bool:
        """Label counts of a training step."""
        return obs.mode is not Mode.EVAL and bool(obs.labels)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Add this step's labels to the counts; judge while the data is young."""
        if obs.mode is Mode.EVAL or not obs.labels:
            return state, ()
        if obs.scalars.get(Collection.LABELS.value, {}).get("weighted", 0.0) > 0:
            return state, ()
        counts, found = dict(state), []
        for name, step in sorted(obs.labels.items()):
            if counts.get(name) == {} or not self._wanted(name):
                continue  # {}: judged, or no classes
            if name not in counts and len(counts) >= _MAX_NAMES:
                continue
            enough = max(self.samples, _PER_CLASS * len((counts.get(name) or {"n": ()})["n"]))
            merged = _added(counts.get(name), step, obs.step, enough // _EARLY)
            total = sum(merged["n"].values())
            if total < max(enough, _PER_CLASS * len(merged["n"])):
                others = sum(len(one["n"]) for key, one in counts.items() if one and key != name)
                fits = len(merged["n"]) <= min(_MAX_CLASSES, _MAX_KEPT - others)
                counts[name] = merged if fits else {}
                continue
            counts[name] = {}
            finding = self._judge(name, merged, total, obs)
            if finding is not None:
                found.append(finding)
        return counts, found

    def _wanted(self, name: str) -> bool:
        return not self.labels_regex or any(re.match(p, name) for p in self.labels_regex)

    def _judge(self, name: str, merged: Json, total: int, obs: Observation) -> Finding | None:
        by_count = sorted(merged["n"].items(), key=lambda item: item[1])
        (rare, low), (frequent, high) = by_count[0], by_count[-1]
        row = obs.layout.row_of.get(name)
        shape = () if row is None else obs.layout.tensors[row].shape
        dense, many = math.prod(shape) > 1, len(by_count) > self.many
        evidence = {"counts": dict(by_count[-5:] + by_count[:5]), "classes": len(by_count),
                    "labels": total}  # fmt: skip
        since = merged["at"]
        if dense or many:
            share, limit = high / total, self.dominance if many else max(self.dominance, _DENSE)
            if share <= limit or len(by_count) <= 1:
                return None
            message = f"class {frequent} makes up {share:.0%} of the {total} labels seen of {name}"
            return Finding(obs.step, name, share, limit, message, since, evidence)
        if _drifts(merged):
            return None
        ratio = (high - 2 * math.sqrt(high)) / (low + 2 * math.sqrt(low + 1))
        if len(by_count) < 2 or ratio <= self.threshold_imbalance:  # noqa: PLR2004 - two classes
            return None
        message = (
            f"class {frequent} has {high} of the {total} labels seen of {name}, class {rare} has "
            f"{low}: {high / max(low, 1):.0f} times as many"
        )
        limit = self.threshold_imbalance
        return Finding(obs.step, name, high / max(low, 1), limit, message, since, evidence)


def _added(state: Json, step: Mapping[int, int], at: int, early: int) -> Json:
    """``n`` counts all labels by class, ``early`` the first part of them."""
    counts: dict[str, int] = dict(state["n"]) if state else {}
    for value, count in step.items():
        if value >= 0:
            counts[str(value)] = counts.get(str(value), 0) + int(count)
    first = state["early"] if state else {}
    if not first and sum(counts.values()) >= early:
        first = counts
    return {"at": state["at"] if state else at, "n": counts, "early": first}


def _drifts(merged: Json) -> bool:
    """Say whether the first labels and the rest come from different distributions."""
    first, total = merged["early"], merged["n"]
    early, late = sum(first.values()), sum(total.values()) - sum(first.values())
    if not early or not late or len(total) < 2:  # noqa: PLR2004 - two classes
        return False
    scale = math.sqrt(late / early)
    pairs = [(first.get(k, 0), n - first.get(k, 0)) for k, n in total.items()]
    chi2 = sum((a * scale - b / scale) ** 2 / (a + b) for a, b in pairs)
    freedom = len(total) - 1
    return bool(chi2 > freedom + _SURE * math.sqrt(2 * freedom))
