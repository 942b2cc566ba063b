"""OUT001 Collapse: a model that has nothing to compare with gives every input the same output.

**Why it hurts.** Without negatives, a margin or a strong critic the easiest answer is one point for
all: the loss is at its best, and the outputs are worth nothing.

**How it is computed.** *Cosine* is the mean cosine of two outputs of a batch, *spread* the standard
deviation over the batch by the RMS of the output (both unit: 1). Outputs are alike while the cosine
is at least ``min_cosine`` and the spread under half of its value at the start, in a run that
started below ``start_cosine``, at each of 5 saved steps and more. evidence.kind says what it is:

* *trivial_optimum*: they are so for ``min_steps`` steps, and the loss has lost 90 % of its start;
* *mode_collapse*: they are so for ``min_steps`` steps under several optimizers, as in a GAN, the
  spread under a fifth of its start;
* *posterior_collapse*: they are so for ``long_steps`` steps in a model that rebuilds its input, or
  whose loss nobody knows, though the loss has lost ``max_fall`` of its start.

Not judged: outputs of one number, without several optimizers those of fewer than 8; classifiers and
regressions, whose targets may be alike, and whose constant answers other rules explain; outputs
that have grown more than tenfold, since they learn an offset.

**Remedy.** Negatives, a stop-gradient, a margin or a variance term; equal strength of generator and
critic; a smaller weight of the divergence, warmed up.

**False alarms to expect.** Losses written by hand whose targets are nearly all the same.

**Missing data.** Without the collection batch nothing is inspected; NaN is passed over.

**Source.** Chen and He (2021) for collapse without negatives; Bowman et al. (2016) for posteriors.
Measured: healthy encoders, GANs and VAEs stay under a cosine of 0.9 once they have begun to learn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from trainwarden.model import (
    TRAIN,
    Finding,
    Json,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import fact, functions, rounded, several_optimizers, skipped
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import begin, fall, follow
from trainwarden.stats.derived import column

RMS = Need("outputs", "rms")
_COSINE, _SPREAD, _OUTPUT = "output/0.cosine", "output/0.batch_spread", "output/0"
_KEPT = 5
_SMALLER, _MUCH_SMALLER, _GROWN, _TRIVIAL = 0.5, 0.2, 10.0, 0.9
_EMBEDDING = 8  # numbers: fewer are a regression's, whose loss may be written by hand
_REBUILDING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                         "binary_cross_entropy", "binary_cross_entropy_with_logits"})  # fmt: skip
_FREE = frozenset({"cosine_embedding_loss", "triplet_margin_loss", "margin_ranking_loss"})
_TOLD = {
    "trivial_optimum": "and the loss has fallen by {fallen:.0%}: one point for all is its optimum",
    "mode_collapse": "under several optimizers: the generator makes one thing of all its inputs",
    "posterior_collapse": "and the loss has fallen by {fallen:.0%}: the input is not used",
}
_REMEDIES = {
    "trivial_optimum": (
        "Give the loss something that keeps outputs apart: negatives, a margin, a variance term.",
        "Stop the gradient of one of two views.",
    ),
    "mode_collapse": (
        "Give critic and generator equal learning rates, or the critic more steps.",
        "Use a Wasserstein loss with a gradient penalty, or minibatch discrimination.",
    ),
    "posterior_collapse": (
        "Lower the weight of the divergence, or warm it up from 0.",
        "Sum the reconstruction over elements as the divergence is summed.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse(CheckedRule[Json]):
    """Fire when all outputs have become alike and nothing else explains it."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "OUT001",
        "Collapse",
        Severity.WARNING,
        Tier.EVIDENCE,
        (
            Need("batch", "value"),
            Need("losses", "value"),
            Need("objective", "value"),
            RMS,
        ),
        (
            "Look at the outputs of a batch side by side.",
            "Give the loss a reason to keep them apart.",
        ),
        "capture the collection batch; trainwarden.watch() does so by default",
        explains=("TensorVariance",),
    )

    min_cosine: float = param(0.98, "Cosine of outputs that are alike.", bounds=Bounds(gt=0, lt=1))
    start_cosine: float = param(
        0.95, "Cosine under which a run has to start.", bounds=Bounds(gt=0, lt=1)
    )
    min_steps: int = param(30, "Steps it must last.", "steps", bounds=Bounds(ge=1))
    long_steps: int = param(
        80, "Steps for models that rebuild their input.", "steps", bounds=Bounds(ge=1)
    )
    max_fall: float = param(
        0.3, "Share of the loss that such a model has lost.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """No output was seen."""
        return {"first": [], "since": -1, "count": 0, "told": False, "loss": begin()}

    def inspects(self, obs: Observation) -> bool:
        """A training step at which the outputs of a batch were compared."""
        return obs.mode is TRAIN and _SPREAD in obs.scalars.get("batch", {})

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Compare how alike outputs are with how alike they were."""
        if state["told"] or not self.inspects(obs) or skipped(obs):
            return state, ()
        loss = follow(state["loss"], obs)
        state = {**state, "loss": loss}
        spread, cosine = fact(obs, "batch", _SPREAD), fact(obs, "batch", _COSINE)
        cosine = 1.0 if spread == 0 and math.isnan(cosine) else cosine
        rms = _rms(obs)
        if not (math.isfinite(spread) and math.isfinite(cosine) and math.isfinite(rms)):
            return state, ()
        if len(state["first"]) < _KEPT:
            return {**state, "first": [*state["first"], [spread, cosine, rms]]}, ()
        began, was, size = (median(one[i] for one in state["first"]) for i in range(3))
        alike = cosine >= self.min_cosine and spread < _SMALLER * began
        if not alike or was > self.start_cosine or rms > _GROWN * size:
            return ({**state, "since": -1, "count": 0} if state["count"] else state), ()
        since = obs.step if state["since"] < 0 else min(state["since"], obs.step)
        state = {**state, "since": since, "count": state["count"] + 1}
        kind = self._kind(obs, spread / began, fall(loss))
        least = self.long_steps if kind == "posterior_collapse" else self.min_steps
        if not kind or state["count"] < _KEPT or obs.step - since < least:
            return state, ()
        why = _TOLD[kind].format(fallen=fall(loss))
        message = (
            f"since step {since} any two outputs of a batch have a cosine of {cosine:.3f}, "
            f"{was:.2f} at the start, {why}"
        )
        evidence = {"kind": kind, "saved_steps": state["count"], "cosine": rounded(cosine),
                    "cosine_at_start": rounded(was), "batch_spread": rounded(spread),
                    "batch_spread_at_start": rounded(began),
                    "loss_fall": rounded(fall(loss))}  # fmt: skip
        found = Finding(
            obs.step, _OUTPUT if _OUTPUT in obs.layout.row_of else "", cosine, self.min_cosine,
            message, since, evidence, _REMEDIES[kind], 0.8,
        )  # fmt: skip
        return {**state, "told": True}, [found]

    def _kind(self, obs: Observation, smaller: float, fallen: float) -> str:
        """Say which collapse it may be; empty for none."""
        if several_optimizers(obs):
            return "mode_collapse" if smaller < _MUCH_SMALLER else ""
        if math.prod(obs.layout.tensors[obs.layout.row_of[_OUTPUT]].shape) < _EMBEDDING:
            return ""
        known = {name.partition(":")[0]: facts for name, facts in functions(obs).items()}
        free = not set(known) - _FREE
        if free and fallen >= _TRIVIAL:
            return "trivial_optimum"
        rebuilt = any(
            name in _REBUILDING and _is_input(obs, facts.get("target_min"), facts.get("target_max"))
            for name, facts in known.items()
        )
        return "posterior_collapse" if (free or rebuilt) and fallen >= self.max_fall else ""


def _rms(obs: Observation) -> float:
    """RMS of the first output, NaN if it is one number a sample or not captured."""
    row = obs.layout.row_of.get(_OUTPUT, -1)
    if row < 0 or math.prod(obs.layout.tensors[row].shape) < 2:  # noqa: PLR2004 - a cosine needs two
        return math.nan
    names, _, values = column(obs, RMS)
    return float(values[names.index(_OUTPUT)]) if _OUTPUT in names else math.nan


def _is_input(obs: Observation, least: float | None, most: float | None) -> bool:
    """Say whether the targets are the model's input: they have its range."""
    low, high = fact(obs, "batch", "input/0.min"), fact(obs, "batch", "input/0.max")
    if least is None or most is None or not low < high:
        return False
    room = 0.1 * (high - low)  # the input's range is that of all steps so far
    return abs(least - low) <= room and abs(most - high) <= room
