"""LOS002 Overfit: the validation loss rises while the training loss falls.

**Why it hurts.** From the best validation on, the job pays for memorising its training set; the
model it ends with is worse than one it had.

**How it is computed.** The training loss is averaged over the saved steps between two validation
passes (unit: the loss's own, under one name in both modes). At each pass, against the pass with the
lowest validation loss so far, the rule asks that

* the validation loss is above that lowest by ``rise`` times it, and by ``regress`` times the way
  it had come (start - lowest), so that noise near zero is no rise, and by 3 robust standard
  deviations of one pass, from second differences; start is the larger of the first validation and
  the first training loss;
* the training loss is below its own value at that pass by ``still`` of it;
* gap = (validation - training) ÷ |training| is above ``gap`` and wider than at that pass.

It fires when all three hold at ``patience`` passes in a row; or, where nothing is classified (of
labels that are learned by heart DAT006 speaks), if what is learned holds for nothing else from the
start on: in ``heart_passes`` passes the validation loss was never below 0.7 of that start, while
the training loss is under a tenth of it.

Where the mean loss of all steps since the last saved one is known (``window``), it is averaged. A
pass without a saved training step since the last one is held against the same training loss.

With ``ratio_threshold`` given, SageMaker's meaning instead: the gap alone, above
``ratio_threshold`` for more than ``patience`` passes; it fires at each such pass.

**Remedy.** Stop at the best pass; more data or augmentation; dropout, weight decay, a smaller
model.

**False alarms to expect.** Validation sets of a few dozen rows.

**Missing data.** Without validation passes nothing is inspected. NaN is passed over. At most 64
losses are followed: ``loss`` and those that come first, by name.

**Source.** SageMaker Debugger's Overfit (gap > 0.1, patience 1) alarms on over half of healthy
runs, since some gap is normal; "generalisation loss" GL against the own best: Prechelt, "Early
Stopping - But When?" (1998), whose GL_5 is a rise of 5 %. Measured on healthy image, text and table
runs: noise makes the validation loss rise by up to 45 % of a small lowest, but at most by 2.5 % of
the way.
"""

from __future__ import annotations

import math
import re
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
from trainwarden.rules._batch import classifier
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss, window_mean

LOSSES = Need("losses", "value")
MAX_LOSSES = 64
_LARGEST = 1e9  # gap that is told
_SURE, _KEPT, _FEWEST = 3.0, 16, 5  # standard deviations; passes
_USELESS, _LEARNED = 0.7, 0.1  # of the start: a validation that gains nothing, a training that did


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit(CheckedRule[Json]):
    """Fire when validation has been getting worse for a while and training has not."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOS002",
        "Overfit",
        Severity.WARNING,
        Tier.EVIDENCE,
        (LOSSES,),
        (
            "Stop at the best validation pass; the checkpoint of that step is the one to keep.",
            "Use more data, or augmentation.",
            "Use dropout, weight decay or a smaller model.",
        ),
        "run validation passes in eval mode with the loss function that trainwarden.watch() got",
        ("Overtraining", "EarlyStopping"),
        sagemaker={"ratio_threshold": 0.1, "patience": 1},
    )

    ratio_threshold: float | None = param(
        None, "Limit for the gap; given, it alone decides. SageMaker's is 0.1.", bounds=Bounds(gt=0)
    )
    patience: int | None = param(
        None, "Passes in a row; 3, or 1 with ratio_threshold.", "passes", bounds=Bounds(ge=1)
    )
    tensor_regex: tuple[str, ...] = param((), "Losses to look at.", pattern=True)
    rise: float = param(0.1, "Rise of the validation loss over its best.", bounds=Bounds(gt=0))
    regress: float = param(0.05, "Rise as a share of start - lowest.", bounds=Bounds(ge=0, lt=1))
    still: float = param(
        0.1, "Least share that the training loss lost since.", bounds=Bounds(ge=0, lt=1)
    )
    gap: float = param(0.1, "Least gap between the losses.", bounds=Bounds(ge=0))
    heart_passes: int = param(
        6, "Passes without any good, while training learns by heart.", "passes", bounds=Bounds(ge=2)
    )

    def start(self) -> Json:
        """No loss has been seen."""
        return {"train": {}, "mean": {}, "start": {}, "best": None, "count": 0, "since": -1,
                "recent": [], "passes": 0, "told": False}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """A validation loss."""
        return obs.mode is EVAL and bool(obs.scalars.get("losses"))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Average the training losses; judge at each validation pass."""
        if obs.mode is TRAIN:
            return self._trained(state, obs), ()
        new = {name: total / count for name, (total, count) in state["train"].items()}
        known = {**state["mean"], **new}
        if obs.mode is not EVAL or not known:
            return state, ()
        loss = main_loss(obs, tuple(f"{re.escape(name)}$" for name in known))  # like with like
        if loss is None:
            return state, ()
        state = {**state, "train": {}, "mean": known}
        if self.ratio_threshold is not None:
            return self._sagemaker(state, obs, known[loss[0]], loss)
        return self._judge(state, obs, known[loss[0]], loss)

    def _trained(self, state: Json, obs: Observation) -> Json:
        """``train`` maps loss → [sum, saved steps] since the last pass, ``start`` → first value."""
        train, start = dict(state["train"]), state["start"]
        losses = obs.scalars.get("losses") or {}
        steps, mean = window_mean(obs)
        names, known = list(losses), {*start}
        if len(names) > 1:
            names.sort(key=lambda name: (name not in known, name != "loss", name))
        for name in names:
            if len(start) >= MAX_LOSSES and name not in start:
                break
            value = losses[name]
            wanted = not self.tensor_regex or any(re.match(p, name) for p in self.tensor_regex)
            if wanted and math.isfinite(value):
                total, count = train.get(name) or (0.0, 0)
                own = (mean, steps) if name == "loss" and steps else (value, 1)
                train[name] = [total + own[0] * own[1], count + own[1]]
                start = start if name in start else {**start, name: value}
        return {**state, "train": train, "start": start}

    def _judge(
        self, state: Json, obs: Observation, train: float, loss: tuple[str, float]
    ) -> tuple[Json, Sequence[Finding]]:
        name, value = loss
        recent = [*state["recent"][1 - _KEPT :], value]
        state = {**state, "recent": recent, "passes": state["passes"] + 1}
        best = state["best"]  # [step, validation loss, training loss]
        if best is not None and self._by_heart(state, obs, train, loss):
            found = self._never_better(obs, train, loss, best, state["start"][name])
            return {**state, "told": True}, [found]
        if best is None or value < best[1]:
            here = [obs.step, value, train]
            start = {**state["start"], name: max(state["start"][name], value)}
            start = start if best is None else state["start"]
            return {**state, "best": here, "start": start, "count": 0, "told": False}, ()
        way = max(0.0, state["start"][name] - best[1])
        limit = best[1] + max(
            self.rise * abs(best[1]), self.regress * way, _SURE * _noise(state["recent"])
        )
        ill = (
            value > limit
            and train < best[2] - self.still * abs(best[2])
            and _gap(value, train) > max(self.gap, _gap(best[1], best[2]))
        )
        state = {**state, "count": state["count"] + 1 if ill else 0}
        if state["told"] or state["count"] < (self.patience or 3):
            return state, ()
        return {**state, "told": True}, [self._finding(obs, train, (name, value), best, limit)]

    def _by_heart(
        self, state: Json, obs: Observation, train: float, loss: tuple[str, float]
    ) -> bool:
        """Say whether nothing that was learned was ever of use in validation."""
        start, least = state["start"][loss[0]], min(state["best"][1], loss[1])
        if state["told"] or state["passes"] < self.heart_passes or classifier(obs):
            return False
        return bool(least > _USELESS * start > 0 and train < _LEARNED * start)

    def _never_better(
        self, obs: Observation, train: float, loss: tuple[str, float], best: Json, start: float
    ) -> Finding:
        name, value = loss
        message = (
            f"the training loss fell from {start:.4g} to {train:.4g}, but the validation loss was "
            f"{best[1]:.4g} at its best and is {value:.4g}: what is learned holds for the training "
            "rows alone"
        )
        evidence = {"best_step": best[0], "best": best[1], "training": train, "validation": value,
                    "gap": round(_gap(value, train), 4)}  # fmt: skip
        return Finding(obs.step, name, value, _USELESS * start, message, best[0], evidence)

    def _finding(
        self, obs: Observation, train: float, loss: tuple[str, float], best: Json, limit: float
    ) -> Finding:
        name, value = loss
        above = f"{_gap(value, best[1]):.0%} above" if best[1] else "above"
        message = (
            f"the validation loss is {value:.4g}, {above} its best of "
            f"{best[1]:.4g} at step {best[0]}, while the training loss fell from {best[2]:.4g} to "
            f"{train:.4g}"
        )
        evidence = {"best_step": best[0], "best": best[1], "training": train, "validation": value,
                    "gap": round(_gap(value, train), 4)}  # fmt: skip
        return Finding(obs.step, name, value, limit, message, best[0], evidence)

    def _sagemaker(
        self, state: Json, obs: Observation, train: float, loss: tuple[str, float]
    ) -> tuple[Json, Sequence[Finding]]:
        limit, (name, value) = self.ratio_threshold or 0.0, loss
        ratio = _gap(value, train)
        if ratio <= limit:
            return {**state, "count": 0, "since": -1}, ()
        since = obs.step if state["count"] == 0 else min(obs.step, state["since"])
        state = {**state, "count": state["count"] + 1, "since": since}
        if state["count"] <= (self.patience or 1):
            return state, ()
        by = f"by {ratio:.0%} " if ratio < _LARGEST else ""
        message = (
            f"the validation loss of {value:.4g} exceeds the training loss of {train:.4g} {by}"
            f"for {state['count']} passes"
        )
        return state, [Finding(obs.step, name, ratio, limit, message, since)]


def _noise(values: Sequence[float]) -> float:
    """Robust standard deviation of one pass; a steady rise or fall is none."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return 1.4826 * median(bends) / math.sqrt(6) if len(bends) >= _FEWEST else 0.0


def _gap(validation: float, training: float) -> float:
    """(validation - training) ÷ |training|, within ±1e9: training may be 0, and JSON has no inf."""
    if training == 0:
        return math.copysign(_LARGEST, validation) if validation else 0.0
    return max(-_LARGEST, min((validation - training) / abs(training), _LARGEST))
