"""LOP003 WrongMode: batch normalisation and dropout are in the mode that does not fit.

**Why it hurts.** In eval mode batch normalisation does not normalise by the batch nor learn its
statistics, and dropout does nothing; validation in training mode is noisy, and feeds the validation
data to those statistics. Nothing crashes, the result is just worse.

**How it is computed.** The hook looks at the modules while they train (unit: modules);
evidence.kind says what it is:

* *eval_mode*: at ``patience`` saved training steps in a row the model as a whole is in eval mode
  with batch normalisation that is trained or with dropout in it; or all of its batch normalisation
  is in eval mode with statistics that are still 0 and 1; or all of its dropout, which was in
  training mode before;
* *train_mode_validation*: ``occasions`` times a loss was computed in training mode without
  gradients, no evaluation in eval mode was ever seen, and the model has dropout or batch
  normalisation;
* *batchnorm_momentum*: batch normalisation whose momentum is at least ``max_momentum``: its
  statistics are those of the last batch. Other libraries mean 1 - momentum by it;
* *batchnorm_stale*: in training mode, over ``min_steps`` steps, no running statistic moves or the
  momentum is 0; or at ``occasions`` evaluations in a row less than ``min_absorbed`` of the
  statistics, 1 - (1 - momentum)**steps, is of this run's data, and the validation loss is over 1.3
  times the training loss.

Intended and not counted: batch normalisation in eval mode whose scale and shift are frozen, or that
has statistics of its own while the model as a whole is in training mode; passes without gradients
at ``patience`` steps in a row, which belong to the algorithm.

**Remedy.** model.train() after each validation pass, model.eval() and torch.no_grad() before it.

**False alarms to expect.** Fine-tuning a whole model in eval mode on purpose.

**Missing data.** Without the collection loop nothing is inspected; without buffers what is said
about statistics is left out.

**Source.** PyTorch's documentation of Module.eval and BatchNorm (momentum 0.1; Keras' 0.99 is 0.01
here). A momentum of 0.9 gives the last two batches 99 % of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import (
    EVAL,
    TRAIN,
    Finding,
    IntArray,
    Json,
    Layout,
    Need,
    Observation,
    RuleMeta,
    Severity,
    Tier,
)
from trainwarden.rules._facts import fact, loop, suspicions
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss
from trainwarden.rules._selection import once
from trainwarden.stats.catalog import INDEX

_MIN, _MAX, _CHANGE = INDEX["min"], INDEX["max"], INDEX["u_maxabs"]
_NAMES = ("batchnorms", "batchnorms_in_eval", "batchnorms_in_eval_trainable", "dropouts",
          "dropouts_in_eval", "batchnorm_momentum_max")  # fmt: skip
_SLOW, _POOR = 0.01, 1.3  # 0.01 knows a thousand steps: nobody evaluates before a tenth of them
_TOLD = {
    "eval_mode": (
        "the model is trained in eval mode: {batchnorms_in_eval:.0f} of {batchnorms:.0f} batch "
        "normalisation and {dropouts_in_eval:.0f} of {dropouts:.0f} dropout layers are in it"
    ),
    "batchnorm_momentum": (
        "batch normalisation has a momentum of {batchnorm_momentum_max:.3g}: its running "
        "statistics are those of the last batch"
    ),
    "batchnorm_stale": (
        "the running statistics of {batchnorms:.0f} batch normalisation layers have not moved"
    ),
}
_REMEDIES = {
    "eval_mode": ("Call model.train() before training, and again after each validation pass.",),
    "batchnorm_momentum": ("Use momentum=0.1; a momentum of 0.99 elsewhere is 0.01 in PyTorch.",),
    "batchnorm_stale": (
        "Give batch normalisation a momentum of 0.1; 0.9 elsewhere is 0.1 in PyTorch.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongMode(CheckedRule[Json]):
    """Fire when layers train in eval mode, or validate in training mode."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "LOP003",
        "WrongMode",
        Severity.WARNING,
        Tier.CRITICAL,
        (
            Need("loop", "value"),
            Need("optimizer", "value"),
            Need("losses", "value"),
            Need("buffers", "update_max"),
        ),
        (
            "Call model.eval() before each validation pass and model.train() after it.",
            "Put torch.no_grad() around validation; it does not replace model.eval().",
        ),
        "capture the collections loop and buffers; trainwarden.watch() does so by default",
        explains=("LossNotDecreasing", "LossSpike", "Overfit", "Overtraining", "UnchangedTensor"),
    )

    patience: int = param(3, "Saved steps in a row.", "saved steps", bounds=Bounds(ge=1))
    occasions: int = param(
        2, "Saved steps with a validation in training mode.", "saved steps", bounds=Bounds(ge=1)
    )
    min_steps: int = param(10, "Steps over which no statistic moves.", "steps", bounds=Bounds(ge=1))
    max_momentum: float = param(0.9, "Least momentum that is ill.", bounds=Bounds(gt=0, le=1))
    min_absorbed: float = param(
        0.1, "Share of the statistics that must be of the run's data.", bounds=Bounds(gt=0, le=1)
    )

    def start(self) -> Json:
        """Nothing is suspected, no validation was seen."""
        return {"kept": {}, "told": [], "trained": False, "at": -1, "row": 0, "count": 0,
                "since": -1, "own": False, "slow": None}  # fmt: skip

    def inspects(self, obs: Observation) -> bool:
        """A training step at which the modules' modes are known."""
        facts = obs.scalars.get("loop", {})
        return obs.mode is TRAIN and ("batchnorms" in facts or "dropouts" in facts)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Look at the modes of this step."""
        if obs.mode is EVAL:
            state = state if state["own"] else {**state, "own": True}  # it validates in eval mode
            return self._evaluated(state, obs) if state["slow"] else (state, ())
        if not self.inspects(obs):
            return state, ()
        facts = loop(obs)
        told = state["told"]
        kinds = [k for k in self._kinds(obs, facts, trained=state["trained"]) if k not in told]
        kept = suspicions(state["kept"], obs.step, kinds)
        dropping = facts["dropouts"] > facts["dropouts_in_eval"]
        slow = _slow(state, obs, facts)
        state = {**state, "kept": kept, "trained": state["trained"] or dropping, "slow": slow}
        found: list[Finding] = []
        for kind, (since, count) in kept.items():
            least = self.min_steps if kind == "batchnorm_stale" else -math.inf
            if count >= self.patience and obs.step - since >= least:
                found.append(self._finding(obs, kind, facts, since, count))
        state, more = self._validation(state, obs, facts)
        found += more
        if not found:
            return state, ()
        names = [str(finding.evidence["kind"]) for finding in found]
        left = {kind: one for kind, one in state["kept"].items() if kind not in names}
        return {**state, "told": sorted({*told, *names}), "kept": left}, found

    def _kinds(
        self, obs: Observation, facts: Mapping[str, float], *, trained: bool
    ) -> Iterator[str]:
        norms, resting = facts["batchnorms"], facts["batchnorms_in_eval"]
        drops, quiet = facts["dropouts"], facts["dropouts_in_eval"]
        active = quiet >= 1 and not facts["dropout_max"] <= 0
        ill = facts["batchnorms_in_eval_trainable"]
        left = (ill >= 1 or active) and fact(obs, "optimizer", "train_mode") == 0
        unborn = norms >= 1 and ill >= norms and _untouched(obs)
        if left or unborn or (active and quiet >= drops and trained):
            yield "eval_mode"
        if norms >= 1 and resting < norms:
            if self.max_momentum <= facts["batchnorm_momentum_max"] <= 1:
                yield "batchnorm_momentum"
            elif facts["batchnorm_momentum_max"] == 0 or (resting == 0 and _stale(obs)):
                yield "batchnorm_stale"

    def _finding(
        self, obs: Observation, kind: str, facts: Mapping[str, float], since: int, count: int
    ) -> Finding:
        facts = {name: facts[name] for name in _NAMES}
        shown = {name: 0.0 if math.isnan(value) else value for name, value in facts.items()}
        message = f"at {count} saved steps since step {since} {_TOLD[kind].format(**shown)}"
        known = {name: value for name, value in facts.items() if math.isfinite(value)}
        evidence = {"kind": kind, "saved_steps": count, **known}
        value = facts["batchnorm_momentum_max"] if kind == "batchnorm_momentum" else float(count)
        limit = self.max_momentum if kind == "batchnorm_momentum" else float(self.patience)
        return Finding(obs.step, "", value, limit, message, since, evidence, _REMEDIES[kind])

    def _evaluated(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Ask of slow statistics whether they explain a poor validation loss."""
        kind, (momentum, since, loss, count) = "batchnorm_stale", state["slow"]
        found = main_loss(obs)
        absorbed = 1 - (1 - momentum) ** max(0, obs.step - since)
        poor = found is not None and loss is not None and found[1] > _POOR * loss > 0
        if absorbed >= self.min_absorbed or kind in state["told"] or not poor:
            return {**state, "slow": [momentum, since, loss, 0]}, ()
        count += 1
        state = {**state, "slow": [momentum, since, loss, count]}
        if count < self.occasions or found is None:
            return state, ()
        message = (
            f"batch normalisation has a momentum of {momentum:g}: after {obs.step - since} steps "
            f"{absorbed:.1%} of its running statistics is of this run's data, and the validation "
            f"loss is {found[1]:.3g} where the training loss is {loss:.3g}"
        )
        evidence = {"kind": kind, "batchnorm_momentum_max": momentum, "absorbed": absorbed}
        finding = Finding(
            obs.step, "", absorbed, self.min_absorbed, message, since, evidence, _REMEDIES[kind]
        )
        return {**state, "told": sorted({*state["told"], kind})}, [finding]

    def _validation(
        self, state: Json, obs: Observation, facts: Mapping[str, float]
    ) -> tuple[Json, list[Finding]]:
        """Count saved steps with validation in training mode; at each step it is no validation."""
        kind = "train_mode_validation"
        if state["own"] or not facts["validation_in_training_mode"] >= 1:
            return {**state, "at": obs.step, "row": 0}, []
        row = state["row"] + 1 if obs.step == state["at"] + 1 else 1
        since = obs.step if state["since"] < 0 else min(state["since"], obs.step)
        count = state["count"] + (row == 1)
        state = {**state, "at": obs.step, "row": row, "count": count, "since": since,
                 "own": row >= self.patience}  # fmt: skip
        modal = facts["batchnorms"] >= 1 or facts["dropouts"] >= 1
        if row > 1 or count < self.occasions or kind in state["told"] or not modal:
            return state, []
        message = (
            f"{count} times since step {since} a loss was computed without gradients while the "
            "model was in training mode, and never in eval mode: model.eval() is not called "
            "before validation"
        )
        evidence = {"kind": kind, "saved_steps": count}
        value, limit = float(count), float(self.occasions)
        return state, [Finding(obs.step, "", value, limit, message, since, evidence)]


def _slow(state: Json, obs: Observation, facts: Mapping[str, float]) -> Json:
    """[momentum, first step, training loss, evaluations in a row] of statistics that are slow."""
    momentum = facts["batchnorm_momentum_max"]
    at_work = facts["batchnorms"] > facts["batchnorms_in_eval"]
    if not 0 <= momentum <= _SLOW or not at_work:
        return None
    before = state["slow"] or [momentum, obs.step, None, 0]
    loss = main_loss(obs)
    return [momentum, before[1], before[2] if loss is None else loss[1], before[3]]


def _statistics(layout: Layout) -> tuple[IntArray, IntArray]:
    """Rows of running means and running variances."""
    rows = layout.rows("buffers").tolist()
    means, variances = (
        np.array([r for r in rows if layout.names[r].endswith(end)], dtype=np.int64)
        for end in ("running_mean", "running_var")
    )
    return means, variances


def _all_statistics(layout: Layout) -> IntArray:
    return np.concatenate(_statistics(layout))


def _untouched(obs: Observation) -> bool:
    """Say whether all running statistics are as they were made: means 0, variances 1."""
    means, variances = (obs.among(rows) for rows in once(obs.layout, "running", _statistics))
    if not means.size or not variances.size:
        return False
    ends = [obs.stats[means, _MIN], obs.stats[means, _MAX]]
    ends += [obs.stats[variances, _MIN] - 1, obs.stats[variances, _MAX] - 1]
    return not any(end.any() for end in ends)


def _stale(obs: Observation) -> bool:
    """Say whether all running statistics are where they were at the saved step before."""
    rows = obs.among(once(obs.layout, "all running", _all_statistics))
    return bool(rows.size) and bool((obs.stats[rows, _CHANGE] == 0).all())
