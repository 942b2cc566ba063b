"""DAT005 BadInput: the inputs hold NaN, are all zero, always the same, or columns say nothing.

**Why it hurts.** NaN spreads through every weight within a step. Inputs that carry nothing, or not
what the labels are about, cannot be learned from: only how often each label is can be.

**How it is computed.** From the float inputs of training steps. Evidence ``kind``:

* ``non_finite``: an input holds NaN or infinity (unit: elements), and so do the model's output or
  the loss at that step: a model that expects gaps and fills them is not told. If that step was not
  saved, the order in which the hook saw tensors become non-finite says it: data before all else;
* ``all_zero``: every element is 0 at ``saves`` saved steps, while labels differ;
* ``constant_input``: all samples of all batches are alike while labels differ;
* ``validation_differs``: at ``passes`` validation passes in a row the inputs, of 64 samples at
  least, lie more than 1 standard deviation from those of training, or vary 1.8 times as much, or a
  tenth as much, or 1.8 times as little and lie 0.25 standard deviations away, as noise that is
  added in training alone does not (means over features; unit: those of training), and the
  validation loss is above 1.5 times the training loss: another transform, or one forgotten;
* ``constant_features``, ``duplicated_features``, ``correlated_features`` (|r| > 0.999; info): of a
  table of 4 to 256 columns and 20 samples a column, 1,000 at least, over half never change or equal
  another column, or two are one, and the loss has not fallen by ``learning``;
* ``nothing_but_copies``: of such a table, of 8 samples a column and 256 at least, nine columns of
  ten, or all but two of eight or more, never change or equal another column, one in five or more
  are such copies, and the loss has not fallen by three times ``learning``.

**Remedy.** Look at one batch as the model gets it. Drop or impute missing values before training;
check joins, file paths, transforms, and that __getitem__ uses its index. Use one transform for
training and validation; only augmentation is for training alone.

**False alarms to expect.** One-hot columns never seen, empty corners of images and padding are
normal: columns are only told if the run does not learn. Validation on another domain, on purpose.

**Missing data.** Without float inputs nothing is inspected. Facts that are unknown are passed over.

**Source.** UMLAUT's and TheDeepChecker's checks of inputs, behind the gate that training is ill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
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
from trainwarden.rules import _batch, _progress
from trainwarden.rules._batch import Facts, fact
from trainwarden.rules._columns import useless_columns
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._selection import clean
from trainwarden.rules._validation_inputs import differs, other
from trainwarden.stats.catalog import INDEX

_NONFINITE = [INDEX["n_nan"], INDEX["n_pinf"], INDEX["n_ninf"]]
_ZERO = INDEX["n_zero"]
_ORDER, _DATA = "order@", "order@data/"  # of the first tensors that were not finite
_ALIKE = 0.95  # share of samples that equal another


@dataclass(frozen=True, slots=True, kw_only=True)
class BadInput(CheckedRule[Json]):
    """Fire when inputs cannot be learned from."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "DAT005",
        "BadInput",
        Severity.WARNING,
        Tier.EVIDENCE,
        (Need("inputs", "n"), Need("losses", "value")),
        (
            "Look at one batch as the model gets it: values, shapes, and that samples differ.",
            "Drop or impute missing values before training.",
            "Check joins, file paths, transforms, and that __getitem__ uses its index.",
        ),
        "capture the inputs: call the model that trainwarden.watch() was given, with float inputs",
        explains=(
            "BadLabels", "Collapse", "DeadRelu", "ExplodingGradient", "ExplodingTensor",
            "LossNotDecreasing", "LossSpike", "MissingGradient", "NotNormalizedData", "Overfit",
            "Overtraining", "UnchangedTensor", "VanishingGradient",
        ),
    )  # fmt: skip

    saves: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    passes: int = param(2, "Validation passes in a row.", "passes", bounds=Bounds(ge=1))
    learning: float = param(
        0.1, "Share of the loss whose fall shows that the run learns.", bounds=Bounds(gt=0, lt=1)
    )

    def start(self) -> Json:
        """No input has been seen."""
        return {"told": [], "zero": [0, 0], "alike": [0, 0], "differ": False, "apart": [0, 0],
                "loss": _progress.begin()}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """The row of an input at a training step."""
        return obs.mode is TRAIN and obs.captured("inputs").size > 0

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Judge the inputs of one step, or what a validation pass says of them."""
        if obs.mode is EVAL:
            return self._validated(state, obs)
        if obs.mode is not TRAIN:
            return state, ()
        state, found = _told(state, self._non_finite(state, obs))
        row = obs.layout.row_of.get("input/0", -1)
        if not 0 <= row < obs.stats.shape[0] or math.isnan(obs.stats[row, 0]):
            return state, found
        after = self._followed(state, obs, row)
        for judge in (self._zero, self._alike):
            after, told = _told(after, judge(after, obs))
            found = [*found, *told]
        if "columns" not in after["told"]:
            after, told = _told(after, useless_columns(obs, after["loss"], self.learning))
            found = [*found, *told]
        return after, found

    def _validated(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        if _progress.main_loss(obs) is None:
            return state, ()
        state = {**state, "apart": _longer(state["apart"], obs.step, on=other(obs))}
        return _told(state, self._differs(state, obs))

    def _differs(self, state: Json, obs: Observation) -> Finding | None:
        since, passes = state["apart"]
        if "validation_differs" in state["told"] or passes < self.passes:
            return None
        first, last = state["loss"]["first"], state["loss"]["last"]
        return differs(obs, last[-1], median(first), since) if first and last else None

    def _followed(self, state: Json, obs: Observation, row: int) -> Json:
        facts = _batch.inputs(obs).get("input/0", {})
        zero = bool(obs.stats[row, _ZERO] == obs.stats[row, 0] > 0)
        return {
            **state,
            "zero": _longer(state["zero"], obs.step, on=zero),
            "alike": _longer(state["alike"], obs.step, on=_one_sample(facts)),
            "differ": _varied(state["differ"], obs),
            "loss": _progress.follow(state["loss"], obs),
        }

    def _non_finite(self, state: Json, obs: Observation) -> Finding | None:
        if "non_finite" in state["told"]:
            return None
        if clean(obs):
            return _entered(obs)
        rows = _batch.rows_of(obs, "inputs")
        counts = obs.stats[rows][:, _NONFINITE].sum(axis=1)
        if not counts.any():
            return _entered(obs)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            if not count > 0 or _is_mask(obs, row) or not _suffers(obs):
                continue
            name = obs.layout.names[row]
            message = (
                f"{name} holds {count:.0f} elements that are NaN or infinite, and so does the loss"
            )
            evidence = {"kind": "non_finite", "elements": count}
            return Finding(obs.step, name, count, 0.0, message, obs.step, evidence)
        return None

    def _zero(self, state: Json, obs: Observation) -> Finding | None:
        since, count = state["zero"]
        if "all_zero" in state["told"] or count < self.saves or not state["differ"]:
            return None
        message = f"every element of input/0 is 0 at {count} saved steps in a row"
        return Finding(obs.step, "input/0", 1.0, 0.0, message, since,
                       {"kind": "all_zero"})  # fmt: skip

    def _alike(self, state: Json, obs: Observation) -> Finding | None:
        if {"constant_input", "all_zero"} & set(state["told"]) or not state["differ"]:
            return None
        since, count = state["alike"]
        if count < self.saves:
            return None
        message = "all samples of input/0 are alike, at every saved step, while their labels differ"
        return Finding(obs.step, "input/0", 1.0, _ALIKE, message, since,
                       {"kind": "constant_input", "samples": "alike"})  # fmt: skip


def _longer(before: Sequence[int], step: int, *, on: bool) -> list[int]:
    """Extend or end a row of saved steps: [its first step, its length]."""
    since, count = before
    return [since if count else step, count + 1] if on else [0, 0]


def _told(state: Json, finding: Finding | None) -> tuple[Json, Sequence[Finding]]:
    if finding is None:
        return state, ()
    kind = finding.evidence["kind"]
    word = "columns" if kind.endswith(("features", "copies")) else kind
    return {**state, "told": [*state["told"], word]}, (finding,)


def _one_sample(facts: Facts) -> bool:
    size, wide = fact(facts, "samples"), fact(facts, "features")
    if not size >= 4:  # noqa: PLR2004 - fewer may be alike by chance
        return False
    constant = fact(facts, "constant_features") >= wide > 0
    return constant or fact(facts, "duplicated_samples") >= max(_ALIKE, 1.0 - 1.5 / size)


def _varied(before: bool, obs: Observation) -> bool:  # noqa: FBT001 - a state
    """Say whether labels were ever seen to differ within a batch."""
    counts = next(iter(_batch.labels(obs).values()), {})
    if before or len([n for n in counts.values() if n > 0]) > 1:
        return True
    row = obs.layout.row_of.get("label/0")
    return row is not None and bool(_batch.value(obs, row, "std") > 0)


def _entered(obs: Observation) -> Finding | None:
    """Tell of data that was the first to be non-finite at a step whose inputs were not saved."""
    history = obs.scalars.get("history")
    if not history:
        return None
    ranks = {n: r for n, r in history.items() if n.startswith(_ORDER)}
    first = min(ranks, key=lambda name: ranks[name], default="")
    if not first.startswith(_DATA) or not _suffers(obs):
        return None
    where = first.removeprefix(_DATA)
    message = f"data that enters at {where} was the first to be NaN or infinite, then the loss"
    evidence = {"kind": "non_finite", "at": where}
    return Finding(obs.step, "", 1.0, 0.0, message, obs.step, evidence)


def _suffers(obs: Observation) -> bool:
    losses = obs.scalars.get("losses", {})
    if any(not math.isfinite(v) for v in losses.values()):
        return True
    if fact(obs.scalars.get("window", {}), "nonfinite_losses") > 0:
        return True
    rows = _batch.rows_of(obs, "outputs")
    return bool((obs.stats[rows][:, _NONFINITE].sum(axis=1) > 0).any())


def _is_mask(obs: Observation, row: int) -> bool:
    """Say whether a tensor holds nothing but 0 and -inf, as attention masks do."""
    stats = obs.stats[row]
    return bool(
        stats[INDEX["n_ninf"]] > 0
        and stats[INDEX["n_nan"]] == 0
        and stats[INDEX["n_pinf"]] == 0
        and not abs(_batch.value(obs, row, "abs_max")) > 0
    )
