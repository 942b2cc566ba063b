"""XGB002 FeatureImportanceOverweight: the model lives on very few of its features.

**Why it hurts.** If those features are missing, late or wrong in production, nothing is left; and a
feature that explains nearly everything is often a leak of the answer (XGB003 looks for that).

**How it is computed.** Each feature's importance of kind ``importance`` is divided by their sum
(unit: share, 0 to 1). It fires when the ``nfeatures`` largest add up to more than ``threshold`` at
``patience`` saved rounds in a row, in a model that had at least three times as many features to
choose from. It is told as info: a fact to know, no fault.

In the ``sagemaker`` profile: importance ``weight``, at once, however many features there are.

**Remedy.** Check where those features come from; ``colsample_bytree`` below 1 spreads the weight.

**False alarms to expect.** Tables in which few columns really matter.

**Missing data.** Linear boosters have no such importances: nothing is inspected.

**Source.** 0.8 and three features are SageMaker Debugger's; it measures ``weight``, the number of
splits, which says less than ``total_gain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trainwarden.model import Finding, Json, Observation, RuleMeta, Severity, Tier
from trainwarden.rules._importance import IMPORTANCE, shares
from trainwarden.rules._parameters import Bounds, CheckedRule, param

_CHOICE = 3  # times as many features as are called few


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureImportanceOverweight(CheckedRule[Json]):
    """Fire when a few features carry nearly all of a boosted model."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "XGB002",
        "FeatureImportanceOverweight",
        Severity.INFO,
        Tier.EVIDENCE,
        (IMPORTANCE,),
        (
            "Check that the largest features are known before the answer is.",
            "Set colsample_bytree below 1, so that other features are tried too.",
        ),
        "watch with trainwarden.XGBoostCallback()",
        sagemaker={
            "threshold": 0.8,
            "nfeatures": 3,
            "importance": "weight",
            "patience": 1,
            "min_features": 1,
        },
    )

    threshold: float = param(
        0.8, "Share of the importance that is too much.", bounds=Bounds(gt=0, le=1)
    )
    nfeatures: int = param(
        3, "Largest features that are added up.", "features", bounds=Bounds(ge=1)
    )
    importance: str = param(
        "total_gain",
        "Kind of importance.",
        choices=("weight", "gain", "cover", "total_gain", "total_cover"),
    )
    patience: int = param(3, "Saved rounds in a row.", "saved rounds", bounds=Bounds(ge=1))
    min_features: int | None = param(
        None,
        "Features with any importance; three times nfeatures.",
        "features",
        bounds=Bounds(ge=1),
    )

    def start(self) -> Json:
        """No importance has been seen."""
        return {"count": 0, "since": -1, "fired": False}

    def inspects(self, obs: Observation) -> bool:
        """Say whether there are importances of the kind that is looked at."""
        return bool(shares(obs, self.importance))

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Add up the largest; one finding for each streak."""
        found = shares(obs, self.importance)
        if not found:
            return state, ()
        largest = sorted(found, key=lambda name: (-found[name], name))[: self.nfeatures]
        share = sum(found[name] for name in largest)
        told = obs.scalars.get(IMPORTANCE.collection, {}).get(f"{self.importance}/", len(found))
        fewest = _CHOICE * self.nfeatures if self.min_features is None else self.min_features
        if not share > self.threshold or told < fewest:
            return self.start(), ()
        since = obs.step if state["count"] == 0 else state["since"]
        count = state["count"] + 1
        if state["fired"] or count < self.patience:
            return {**state, "count": count, "since": since}, ()
        message = (
            f"{len(largest)} of {told:.0f} features ({', '.join(largest)[:120]}) carry {share:.0%} "
            f"of the {self.importance.replace('_', ' ')}"
        )
        evidence = {name: round(found[name], 4) for name in largest[:20]}
        finding = Finding(obs.step, "", share, self.threshold, message, since, evidence)
        return {"count": count, "since": since, "fired": True}, [finding]
