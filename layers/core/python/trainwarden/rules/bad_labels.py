"""DAT006 BadLabels: labels are impossible, all the same, out of order, mixed, or mark gaps.

**Why it hurts.** The model learns what the labels say. Labels beyond what the loss can express pull
outputs without end; labels that do not belong to their inputs can only be learned by heart.

**How it is computed.** Evidence ``kind``:

* ``impossible``: the loss function was given targets it has no meaning for (unit: their share):
  not one of its classes and not ignored; below -0.5 or above 1.5 in a binary cross entropy, since
  smoothed labels are near 0 and 1 (standardised images are OBJ001's business); NaN, with a loss
  that is not finite;
* ``constant_labels``: ``samples`` labels or more are of a single class, of two or more that the
  loss knows, over ``steps`` steps, and the model answers it with certainty;
* ``out_of_order``: at ``passes`` validation passes in a row the accuracy is below chance (1 ÷ C) by
  four standard deviations of a binomial, or for two classes below 0.3, while the training accuracy
  is above 0.7: the classes of validation are numbered in another way;
* ``relabelled``: of ``repeats`` samples or more that came again at saved steps (their inputs were
  bit by bit the same) at least 0.95 of the share had another label than before that differs by
  chance, for 50 steps or more, and the median of the last five losses was never below 0.9 of the
  entropy of their labels, and is not below 0.95 of it: labels are mixed anew in each batch or epoch
  (that entropy is taken as the least that such labels can have, -ln of the share of equal pairs).
  Not judged: losses that the loop weights itself (reduction="none"), as of actions and rewards;
* ``random_labels``: the training accuracy is 0.6 at least, and 0.3 above the share of the most
  frequent class of its own batch, while no validation pass, ``passes`` or more, was ever better
  than its most frequent class and luck, and the last five were on average not by two standard
  errors better than predictions that do not depend on labels (sum over classes of share of labels
  x share of predictions), nor by 0.1 less one such error: what was learned by heart holds for
  nothing else. Or, by a plain cross-entropy over four classes or more, before that: the training
  loss is under 0.95 of the entropy of the class shares in training and in validation, while no
  validation pass of six or more, of 200 labels each, had a loss under 0.98 of that entropy, and the
  median of the last three is above 1.03 of it (where there are few classes and rows, weak labels
  look the same); or, over eight classes or more and in 12 passes, that of training is under 0.93,
  none of validation was under 0.97, and the median of the last three is above 0.985, 0.01 above the
  lowest and 0.06 above that of training;
* ``missing_marked``: in an elementwise loss one number that is written for missing ones, of nines
  such as -9999, an end of the integers or 1e9 and more, is the very same at ``marks`` saved steps
  over 20 steps or more. It lies apart from all other targets, at most 0.3 of them have it, they
  make 0.7 of the loss, and no output has come half of the way to it. That it lies apart is seen
  from a variance of at least 0.95 of the largest that targets of their mean can have between their
  ends.

**Remedy.** Look at ten samples with their labels, of training and of validation. Map classes to
numbers once, for both; check the order after sorting, joining or shuffling one of two arrays. Leave
rows without a target out.

**False alarms to expect.** Episodes that give their classes new numbers each time, on purpose,
until something is learned of them. Ordinary overfit begins with a validation that gets better,
and is LOS002's business. Gaps that the loss leaves out make no part of it, and are not told.

**Missing data.** Without facts of a loss function nothing is inspected. NaN is passed over.

**Source.** "Understanding deep learning requires rethinking generalization" (Zhang et al., 2017):
networks fit random labels, and are then at chance elsewhere. Whoever answers with the class shares
has their entropy as loss; what was learned of true labels comes under it. Bhatia and Davis, "A
better bound on the variance" (2000).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

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
from trainwarden.rules import _batch
from trainwarden.rules._batch import fact
from trainwarden.rules._by_heart import KEPT, NEARLY, by_heart, entropy_of
from trainwarden.rules._facts import several_optimizers
from trainwarden.rules._impossible import impossible
from trainwarden.rules._luck import gain, mere_luck
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss, window_mean
from trainwarden.rules._relabelled import follow_labels, relabelled
from trainwarden.rules._targets import apart, follow_marker

_GOOD, _BINARY, _SURE = 0.7, 0.3, 4.0
_LEARNED, _ABOVE = 0.6, 0.3
_LUCK = 0.1  # share of what is missing to 1 that the best of many passes may be better by chance
_CERTAIN = 0.99
_FEWEST = 50  # validation labels
_PLAIN = ("weighted", "smoothing", "ignored", "reduction_sum")  # facts that are 0 in one
_MARKED_STEPS, _OF_LOSS, _ALL = 20, 0.7, 1.1
_GAPS = (
    "Leave out rows whose target is missing, or fill them with a number of the others' size.",
    "Read such numbers as missing: na_values in pandas.read_csv(), nodata in rasters.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLabels(CheckedRule[Json]):
    """Fire when labels cannot be right."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT006",
        "BadLabels",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("objective", "value"), Need("losses", "value"), Need("labels", "mean")),
        (
            "Look at ten samples with their labels, of training and of validation.",
            "Number the classes once, by the same table, for both.",
            "Check the order after sorting, joining or shuffling one of two arrays.",
        ),
        "capture the loss function: pass loss_fn to trainwarden.watch(), or use torch's",
        explains=(
            "ClassImbalance", "Collapse", "Confusion", "ExplodingTensor", "LossMisuse",
            "LossNotDecreasing", "LossSpike", "Overfit", "OutputRange", "Overtraining",
        ),
    )  # fmt: skip

    samples: int = param(5000, "Labels of a single class.", "labels", bounds=Bounds(ge=100))
    steps: int = param(100, "Steps over which they came.", "steps", bounds=Bounds(ge=1))
    passes: int = param(3, "Validation passes.", "passes", bounds=Bounds(ge=2))
    repeats: int = param(200, "Samples that came again.", "samples", bounds=Bounds(ge=50))
    marks: int = param(5, "Saved steps with one number apart.", "saved steps", bounds=Bounds(ge=2))

    def start(self) -> Json:
        """Nothing has been seen."""
        return {"told": [], "one": [-1, 0, -1], "train": [], "most": 0.0, "below": 0, "passes": 0,
                "best": 0.0, "start": None, "guess": [0.0, None, []], "mark": [],
                "again": [], "gains": []}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """Facts of a loss function."""
        return bool(_batch.objectives(obs))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge the targets of one step, or a validation pass."""
        if "objective" not in obs.scalars or obs.mode not in {TRAIN, EVAL}:
            return state, ()
        found = []
        findings: tuple[Finding | None, ...]
        if obs.mode is TRAIN:
            state = _followed(state, obs)
            findings = (
                self._impossible(state, obs), self._constant(state, obs), self._marked(state, obs),
                self._relabelled(state, obs),
            )  # fmt: skip
        else:
            state = _passed(state, obs)
            findings = (self._below(state, obs), self._random(state, obs))
        for finding in findings:
            if finding is not None:
                state = {**state, "told": [*state["told"], finding.evidence["kind"]]}
                found.append(finding)
        return state, found

    def _impossible(self, state: Json, obs: Observation) -> Finding | None:
        return None if "impossible" in state["told"] else impossible(obs)

    def _constant(self, state: Json, obs: Observation) -> Finding | None:
        label, n, since = state["one"]
        if "constant_labels" in state["told"] or n < self.samples or obs.step - since < self.steps:
            return None
        facts = _batch.classifier(obs)
        classes = fact(facts, "classes")
        known = classes >= 2  # noqa: PLR2004 - two classes
        certain = fact(facts, "accuracy") >= _CERTAIN and _batch.answers(obs, classes)
        if not known or not certain or several_optimizers(obs):
            return None
        message = f"all {n} labels seen in {obs.step - since} steps are {label}"
        return Finding(obs.step, _label(obs), 1.0, 1.0, message, since,
                       {"kind": "constant_labels", "labels": n})  # fmt: skip

    def _below(self, state: Json, obs: Observation) -> Finding | None:
        if "out_of_order" in state["told"] or state["below"] < self.passes:
            return None
        facts = _batch.classifier(obs)
        accuracy, train = fact(facts, "accuracy"), _train(state)
        message = (
            f"the validation accuracy of {accuracy:.0%} is far below chance while that of training "
            f"is {train:.0%}: labels of validation are numbered or ordered in another way"
        )
        limit = 1 / max(2.0, fact(facts, "classes"))
        return Finding(obs.step, _label(obs), accuracy, limit, message, obs.step,
                       {"kind": "out_of_order", "train": train})  # fmt: skip

    def _random(self, state: Json, obs: Observation) -> Finding | None:
        if {"random_labels", "relabelled", "out_of_order"} & set(state["told"]):
            return None
        train, usual = _train(state), state["most"]
        if state["passes"] < self.passes or state["below"] or not usual > 0:
            return None
        above = sum(seen[0] - seen[1] for seen in state["train"]) / len(state["train"] or [0])
        if state["best"] > usual:
            return None
        if not (train > _LEARNED and above > _ABOVE):
            return by_heart(state, obs, self.passes)
        if not mere_luck(state["gains"]):
            return None
        message = (
            f"the training accuracy is {train:.0%}, yet in {state['passes']} validation passes it "
            f"never was above {usual:.0%}, what the most frequent class and luck give: labels do "
            "not belong to their inputs, or these say next to nothing of them"
        )
        evidence = {"kind": "random_labels", "train": train, "passes": state["passes"]}
        return Finding(obs.step, _label(obs), state["best"], usual, message, obs.step, evidence)

    def _relabelled(self, state: Json, obs: Observation) -> Finding | None:
        if "relabelled" in state["told"]:
            return None
        return relabelled(state["again"], state["train"], obs, self.repeats)

    def _marked(self, state: Json, obs: Observation) -> Finding | None:
        if not state["mark"] or "missing_marked" in state["told"]:
            return None
        value, saves, since, other, varied = state["mark"]
        if saves < self.marks or obs.step - since < _MARKED_STEPS or not varied:
            return None
        found = apart(obs)
        if found is None or found[0].value != value or several_optimizers(obs):
            return None
        share, part = found[0].share, found[1]
        if not _OF_LOSS <= part <= _ALL:
            return None
        message = (
            f"{share:.1%} of the targets are {value:.7g}, far from the others, which end at "
            f"{other:.4g}, and make {part:.0%} of the loss: the number stands for missing ones"
        )
        evidence = {"kind": "missing_marked", "number": value, "share": round(share, 4)}
        return Finding(obs.step, _label(obs), part, _OF_LOSS, message, since, evidence, _GAPS)


def _label(obs: Observation) -> str:
    return next(iter(_batch.labels(obs)), "")


def _followed(state: Json, obs: Observation) -> Json:
    """``one``: [the only class so far or -1, labels of it, first step]; -2 when there are more."""
    facts = _batch.classifier(obs)
    accuracy = fact(facts, "accuracy")
    train, start = state["train"], state["start"]
    if not math.isnan(accuracy):
        loss, least = _mean_loss(obs), state["guess"][1]
        shares = entropy_of(obs) if least is not None and least >= NEARLY else 0.0
        train = [*train[1 - KEPT :], [accuracy, _top(obs), loss, shares]]
        if start is None:
            plain = not any(fact(facts, name) > 0 for name in _PLAIN)
            start = loss if plain and loss is not None else -1.0
    label, n, since = state["one"]
    for counts in _batch.labels(obs).values():
        if label == -2 and n == 0:  # noqa: PLR2004 - see above
            break
        seen = [c for c, m in counts.items() if m > 0]
        if label == -2 or len(seen) > 1 or (seen and label not in (-1, seen[0])):  # noqa: PLR2004 - see above
            label, n = -2, 0
        elif seen:
            label, since = seen[0], obs.step if label == -1 else since
            n += int(counts[seen[0]])
    mark = state["mark"] if facts else follow_marker(state["mark"], obs)
    again = follow_labels(state["again"], train, obs)
    return {**state, "train": train, "one": [label, n, since], "start": start, "mark": mark,
            "again": again}  # fmt: skip


def _mean_loss(obs: Observation) -> float | None:
    """Mean loss since the last saved step, that of the step itself if it is not known."""
    steps, mean = window_mean(obs)
    if steps:
        return mean
    loss = main_loss(obs)
    return None if loss is None else loss[1]


def _passed(state: Json, obs: Observation) -> Json:
    """Take a validation pass into account: ``best`` accuracy, ``most`` share of one class."""
    facts = _batch.classifier(obs)
    accuracy, classes = fact(facts, "accuracy"), fact(facts, "classes")
    counts = next(iter(_batch.labels(obs).values()), {})
    n = sum(counts.values())
    if math.isnan(accuracy) or n < _FEWEST:
        return state
    chance = 1 / max(2.0, classes if classes > 1 else 2.0)
    below = accuracy < chance - _SURE * math.sqrt(chance * (1 - chance) / n)
    below = below and (accuracy < _BINARY or chance < _BINARY) and _train(state) > _GOOD
    most = max(counts.values()) / n
    margin = max(2.0 * math.sqrt(most * (1 - most) / n), _LUCK * (1 - most))
    entropy = entropy_of(obs)
    loss, (_, least, last) = main_loss(obs), state["guess"]
    if loss is not None and entropy > 0:
        ratio = loss[1] / entropy
        least, last = ratio if least is None else min(least, ratio), [*last[-2:], ratio]
    return {
        **state,
        "gains": [*state["gains"][1 - KEPT :], gain(obs, accuracy)],
        "below": state["below"] + 1 if below else 0,
        "passes": state["passes"] + 1,
        "best": max(state["best"], accuracy),
        "most": max(state["most"], most + margin),
        "guess": [entropy, least, last],
    }


def _train(state: Json) -> float:
    seen = [accuracy for accuracy, *_ in state["train"]]
    return sum(seen) / len(seen) if seen else 0.0


def _top(obs: Observation) -> float:
    """Return the share of the most frequent class in a batch."""
    counts = next(iter(_batch.labels(obs).values()), {})
    return max(counts.values(), default=1) / max(1, sum(counts.values()))
