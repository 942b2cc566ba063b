"""XGB003 TargetLeakage: one feature gives the answer away.

**Why it hurts.** A column that is computed from the label, or known only after it, makes training
and validation look perfect; in production it is not there.

**How it is computed.** s is the share of the total gain of the most important feature, f is
1 - loss ÷ first loss, of training and of validation (unit: shares, 0 to 1). It fires when
s ≥ ``gain_share`` and both f ≥ ``fall`` within the first ``rounds`` rounds after the first saved
one, with at least ``min_features`` features to choose from or one of them alone in use.

**Remedy.** Find out when and how that column is made; train without it and compare.

**False alarms to expect.** Tasks that one column really solves, such as converting units.

**Missing data.** Needs importances, and losses of training and validation.

**Source.** Kaufman et al., Leakage in Data Mining (2012): too good too soon, by one feature.
Measured with ``benchmarks/detection.py``: on scikit-learn's tables the best feature's share stays
below 0.8; with the label among the features it is 0.97 to 1, and eta 0.3 takes the loss down by
more than 90 % within 10 rounds.
"""

from __future__ import annotations

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
from trainwarden.rules._importance import IMPORTANCE, shares
from trainwarden.rules._parameters import Bounds, CheckedRule, param
from trainwarden.rules._progress import main_loss

LOSS = Need("losses", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLeakage(CheckedRule[Json]):
    """Fire when one feature alone makes both losses collapse."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "XGB003",
        "TargetLeakage",
        Severity.WARNING,
        Tier.EVIDENCE,
        (IMPORTANCE, LOSS),
        (
            "Check when the feature is known: a value made after, or from, the label is a leak.",
            "Train without the feature and compare.",
        ),
        "watch with trainwarden.XGBoostCallback() and give xgboost.train a validation set in evals",
        explains=("FeatureImportanceOverweight",),
    )

    gain_share: float = param(
        0.95, "Share of the total gain of one feature.", bounds=Bounds(gt=0, le=1)
    )
    fall: float = param(
        0.9, "Share of its first value that each loss has lost.", bounds=Bounds(gt=0, lt=1)
    )
    rounds: int = param(20, "It happens within so many rounds.", "rounds", bounds=Bounds(ge=1))
    min_features: int = param(2, "Features with any gain.", "features", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """Nothing has been seen."""
        return {"at": -1, "first": {}, "fallen": {}, "feature": "", "share": 0.0, "fired": False}

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Follow both losses and the largest feature."""
        loss = main_loss(obs)
        if state["fired"] or loss is None:
            return state, ()
        if loss[1] < 0:  # a score of either sign says nothing about how much is gone
            return {**state, "fired": True}, ()
        at = obs.step if state["at"] < 0 else state["at"]
        if obs.step - at > self.rounds:
            return {**self.start(), "at": at, "fired": True}, ()
        mode = obs.mode.value
        first = {mode: loss[1], **state["first"]}
        fallen = {**state["fallen"], mode: 1.0 - loss[1] / (first[mode] or 1.0)}
        state = {**state, "at": at, "first": first, "fallen": fallen}
        found = shares(obs, "total_gain")
        if found:
            best = max(found, key=lambda name: (found[name], name))
            told = obs.scalars.get(IMPORTANCE.collection, {}).get("total_gain/", len(found))
            alone = found[best] if told >= self.min_features or found[best] >= 1 else 0.0
            state = {**state, "feature": best, "share": alone}
        falls = [fallen.get(one.value, 0.0) for one in (TRAIN, EVAL)]
        if state["share"] < self.gain_share or min(falls) < self.fall:
            return state, ()
        message = (
            f"the feature {state['feature']} has {state['share']:.0%} of the gain, and within "
            f"{obs.step - at + 1} rounds training and validation loss fell by {falls[0]:.0%} and "
            f"{falls[1]:.0%}: it may hold the answer"
        )
        evidence = {
            "feature": state["feature"],
            "training_fall": falls[0],
            "validation_fall": falls[1],
        }
        finding = Finding(
            obs.step, "", state["share"], self.gain_share, message, at, evidence, confidence=0.7
        )
        return {**state, "fired": True}, [finding]
