"""DAT001 ClassImbalance: some classes have far fewer labels than others.

**Why it hurts.** A network that always answers with the frequent class has a low loss and a high
accuracy and is useless for the rare one.

**How it is computed.** Labels are counted per class over the training steps (unit: labels). Once
``samples`` were seen, and at least 20 for each class, the rule compares the largest class with the
smallest. So that few labels do not look like few members, both counts are moved two standard
deviations of a Poisson count towards each other:

    ratio = (max - 2 √max) ÷ (min + 2 √(min + 1))

Where that is above ``threshold_imbalance`` and the predictions are known, the rare class then has
its chance: from here on its labels are compared with what the model says of them, and the rule
fires when five of them came after step 30, and over 70 % were taken for another class; in
training, or in two evaluations in a row in which most of the frequent class was recognised (of
some classes a sampler shows too few in training to tell). Six times five that fared better settle
it. Without predictions it fires at once. Each label tensor is judged once, and not if the first
quarter of its labels differs from the rest by more than chance (two-sample χ², probability below
e^-7): labels that drift (a policy's own actions, data in order) are no property of the data set.
Labels below 0 (ignore_index) do not count.

With more than ``many`` classes (tokens, ages) frequencies differ by nature: there it fires only
when one class has more than ``dominance`` of all labels. Labels with a value for every position and
few classes (segmentation) are mostly background: there that share must be above 0.98.

With ``threshold_misprediction`` given, SageMaker's meaning instead: once ``samples`` labels were
seen, the plain ratio of largest to smallest class, or the share of a class's labels that were taken
for another class above ``threshold_misprediction``.

**Remedy.** Weight the loss (weight=, pos_weight=), resample (WeightedRandomSampler), focal loss;
judge by per-class recall. Exclude padding with ignore_index.

Not judged: labels of a loss that weights its classes (scalar ``weighted`` of the labels), and
tokens of sequences whose inputs are tokens too (TokenImbalance, NLP002, judges those).

**False alarms to expect.** Imbalance that a loss of one's own already answers.

**Missing data.** Without integer labels nothing is inspected. At most 64 label tensors are counted,
those that come first, by name, and 2,000 classes of them at a time; those beyond are not judged.

**Source.** SageMaker Debugger's ClassImbalance: ratio 10 after 500 samples, misprediction 0.7.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import (
    EVAL,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules import _batch
from trainwarden.rules._batch import CONFUSION, CORRECT, PREDICTED
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_PER_CLASS = 20
_DENSE = 0.98  # background of segmentation masks
_SURE = 7.0  # chance is below e^-7, by the tail bound of χ² (Laurent and Massart, 2000)
_EARLY = 4  # the first labels that the rest is compared with are one in so many
_MAX_CLASSES = 1000  # kept in the state; beyond that labels are ids, not classes
_MAX_KEPT = 2000  # classes of all label tensors that are being counted
_MAX_NAMES = 64
_RARE_LABELS, _RARE_STEPS, _MISTAKEN = 5, 30, 0.7  # what the rare class is given
_PASSES = 2  # evaluations in a row
_WINDOWS = 6  # times that it may be recognised before it is no longer watched


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
        explains=("Confusion", "Collapse"),
        sagemaker={
            "threshold_imbalance": 10,
            "threshold_misprediction": 0.7,
            "samples": 500,
        },
    )

    threshold_imbalance: float = param(10.0, "Largest over smallest class.", bounds=Bounds(gt=1))
    samples: int = param(500, "Labels before they are judged.", "labels", bounds=Bounds(ge=1))
    threshold_misprediction: float | None = param(
        None,
        "Largest share of a class's labels taken for another; SageMaker's meaning if given.",
        bounds=Bounds(gt=0, le=1),
    )
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
        return obs.mode is not EVAL and bool(_batch.labels(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Add this step's labels to the counts; judge while the data is young."""
        if not obs.labels:
            return state, ()
        if obs.mode is EVAL:
            return self._evaluated(state, obs)
        plain = self.threshold_misprediction is not None
        if not plain and obs.scalars.get("labels", {}).get("weighted", 0.0) > 0:
            return state, ()
        counts, found = dict(state), []
        for name, step in _batch.labels(obs).items():
            if counts.get(name) == {} or not self._wanted(name):
                continue  # {}: judged, or no classes
            if name not in counts and len(counts) >= _MAX_NAMES:
                continue
            if not plain and _batch.per_token(obs, name):
                continue
            kept, finding = (self._plain if plain else self._next)(counts, name, step, obs)
            counts[name] = kept
            if finding is not None:
                found.append(finding)
        return counts, found

    def _next(
        self, counts: Json, name: str, step: Mapping[int, int], obs: Observation
    ) -> tuple[Json, Finding | None]:
        """Return what is kept of a label tensor, and what is told of it."""
        if "chance" in (counts.get(name) or {}):
            return _chance(counts[name], name, obs)
        enough = max(self.samples, _PER_CLASS * len((counts.get(name) or {"n": ()})["n"]))
        merged = _added(counts.get(name), step, obs.step, enough // _EARLY)
        total = sum(merged["n"].values())
        if total < max(enough, _PER_CLASS * len(merged["n"])):
            others = sum(len(one.get("n", ())) for key, one in counts.items() if key != name)
            fits = len(merged["n"]) <= min(_MAX_CLASSES, _MAX_KEPT - others)
            return (merged if fits else {}), None
        finding = self._judge(name, merged, total, obs)
        if finding is None or "rare" not in finding.evidence or _recall(obs, name, -1) is None:
            return {}, finding
        rare = int(finding.evidence["rare"])
        kept = {"chance": [rare, 0.0, 0.0, finding.value, finding.limit, finding.first_step, 0],
                "counts": dict(finding.evidence["counts"]), "text": finding.message,
                "frequent": int(finding.evidence["frequent"]), "passes": 0}  # fmt: skip
        return kept, None

    def _evaluated(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """See how evaluations fare with the rare classes that are watched."""
        counts, found = dict(state), []
        for name, kept in state.items():
            if "chance" not in kept or "frequent" not in kept or name not in obs.labels:
                continue
            counts[name], finding = _chance_in_evaluation(kept, name, obs)
            if finding is not None:
                found.append(finding)
        return counts, found

    def _plain(
        self, counts: Json, name: str, step: Mapping[int, int], obs: Observation
    ) -> tuple[Json, Finding | None]:
        """Judge as SageMaker's documentation says."""
        merged = _added(counts.get(name), step, obs.step, self.samples)
        wrong = _mistaken((counts.get(name) or {}).get("wrong", {}), obs, name)
        total = sum(merged["n"].values())
        if total < self.samples:
            fits = len(merged["n"]) <= _MAX_CLASSES
            return ({**merged, "wrong": wrong} if fits else {}), None
        by_count = sorted((n, label) for label, n in merged["n"].items())
        (low, rare), (high, frequent) = by_count[0], by_count[-1]
        if low > 0 and high / low > self.threshold_imbalance:
            message = (
                f"class {frequent} has {high} of the {total} labels seen of {name}, class {rare} "
                f"has {low}"
            )
            evidence = {"kind": "imbalance", "labels": total}
            return {}, Finding(obs.step, name, high / low, self.threshold_imbalance, message,
                               merged["at"], evidence)  # fmt: skip
        limit = self.threshold_misprediction or 1.0
        shares = [(bad / n, label) for label, (n, bad) in wrong.items() if n > 0]
        if not shares or max(shares)[0] <= limit:
            return {}, None
        share, label = max(shares)
        message = f"{share:.0%} of the labels {label} of {name} were taken for another class"
        evidence = {"kind": "misprediction", "labels": total}
        return {}, Finding(obs.step, name, share, limit, message, merged["at"], evidence)

    def _wanted(self, name: str) -> bool:
        return not self.labels_regex or any(re.match(p, name) for p in self.labels_regex)

    def _judge(self, name: str, merged: Json, total: int, obs: Observation) -> Finding | None:
        by_count = sorted(merged["n"].items(), key=lambda item: item[1])
        (rare, low), (frequent, high) = by_count[0], by_count[-1]
        row = obs.layout.row_of.get(name)
        shape = () if row is None else obs.layout.tensors[row].shape
        dense = math.prod(shape) > 1 or not _batch.per_sample(obs, name)
        many = len(by_count) > self.many
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
        evidence |= {"rare": rare, "frequent": frequent}
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


def _chance(kept: Json, name: str, obs: Observation) -> tuple[Json, Finding | None]:
    """Watch how the model takes members of the rare class: [class, labels, mistaken, …]."""
    rare, seen, wrong, ratio, limit, since, windows = kept["chance"]
    told = _recall(obs, name, rare)
    if told is not None and obs.step - since >= _RARE_STEPS:
        seen, wrong = seen + told[0], wrong + told[1]
    kept = {**kept, "chance": [rare, seen, wrong, ratio, limit, since, windows]}
    if seen < _RARE_LABELS:
        return kept, None
    if wrong <= _MISTAKEN * seen:
        again = {**kept, "chance": [rare, 0.0, 0.0, ratio, limit, since, windows + 1]}
        return ({} if windows + 1 >= _WINDOWS else again), None
    return {}, _mistaken_for_others(kept, name, obs, wrong / seen)


def _chance_in_evaluation(kept: Json, name: str, obs: Observation) -> tuple[Json, Finding | None]:
    """Watch how an evaluation takes members of the rare class, if the frequent one is known."""
    rare, since = kept["chance"][0], kept["chance"][5]
    told, usual = _recall(obs, name, rare), _recall(obs, name, kept["frequent"])
    if told is None or usual is None or obs.step - since < _RARE_STEPS:
        return kept, None
    if min(told[0], usual[0]) < _RARE_LABELS or usual[1] > usual[0] / 2:
        return kept, None
    passes = kept["passes"] + 1 if told[1] > _MISTAKEN * told[0] else 0
    if passes < _PASSES:
        return {**kept, "passes": passes}, None
    return {}, _mistaken_for_others(kept, name, obs, told[1] / told[0])


def _mistaken_for_others(kept: Json, name: str, obs: Observation, share: float) -> Finding:
    rare, _, _, ratio, limit, since, _ = kept["chance"]
    message = f"{kept['text']}; {share:.0%} of it are taken for another class"
    evidence = {"counts": kept["counts"], "rare": rare, "mistaken": share}
    return Finding(obs.step, name, ratio, limit, message, since, evidence)


def _recall(obs: Observation, name: str, label: int) -> tuple[float, float] | None:
    """Labels of a class among those judged, and how many of them were mistaken; None if unknown."""
    table, right = _batch.beside(obs, name, CONFUSION), _batch.beside(obs, name, CORRECT)
    if right is None:
        return None
    counts = obs.labels[name]
    judged, total = _batch.beside(obs, name, PREDICTED), sum(counts.values())
    classes = _batch.fact(_batch.classifier(obs), "classes")
    if table is not None and classes > 1:
        seen = float(sum(n for pair, n in table.items() if pair // int(classes) == label))
    else:
        share = sum((judged or counts).values()) / max(1, total)
        seen = counts.get(label, 0) * min(1.0, share)
    return seen, max(0.0, seen - right.get(label, 0))


def _mistaken(before: Json, obs: Observation, name: str) -> Json:
    """Class → [labels, mistaken ones] with this step's added."""
    found = dict(before)
    for label in obs.labels[name]:
        told = _recall(obs, name, label)
        if told is not None and label >= 0 and (str(label) in found or len(found) < _MAX_CLASSES):
            seen, wrong = found.get(str(label), (0.0, 0.0))
            found[str(label)] = [seen + told[0], wrong + told[1]]
    return found


def _drifts(merged: Json) -> bool:
    """Say whether the first labels and the rest come from different distributions."""
    first, total = merged["early"], merged["n"]
    early, late = sum(first.values()), sum(total.values()) - sum(first.values())
    if not early or not late or len(total) < 2:  # noqa: PLR2004 - two classes
        return False
    scale = math.sqrt(late / early)
    pairs = [(first.get(k, 0), n - first.get(k, 0)) for k, n in total.items() if n]
    chi2 = sum((a * scale - b / scale) ** 2 / (a + b) for a, b in pairs)
    freedom = len(total) - 1
    return bool(chi2 > freedom + 2 * math.sqrt(freedom * _SURE) + 2 * _SURE)
