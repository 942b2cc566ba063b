"""XGB004 CreateXgboostReport: no alarm; it stands for the report of a boosted run.

**Why it hurts.** It does not. SageMaker Debugger's rule of this name wrote a report when a training
with XGBoost had ended. Jobs that still ask for it are understood, and get theirs from
``trainwarden report RUN``, for any run and at any time (docs/report.md).

**How it is computed.** Nothing is: the rule never fires, and its verdict is NoIssuesFound with the
number of saved rounds (unit: rounds) that a report can show.

**Remedy.** ``trainwarden report .trainwarden/runs --job NAME``, or ``trainwarden report NAME --at
aws`` for a job in the cloud: labels, losses, learning rate, feature importances of all kinds,
confusion matrix with precision, recall and F1, ROC and precision-recall curves, residuals, errors
by range of the label, and trees, in one HTML file.

**False alarms to expect.** None.

**Missing data.** A run without trees or feature importances is not evaluated.

**Source.** SageMaker Debugger's rule, which has no parameter. Its report showed labels and
predictions of a validation set; here they are of up to 2,000 training rows, in counts and means,
since no prediction of a single row leaves the training container.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from trainwarden.rules._parameters import CheckedRule

_SHOWN = ("trees", "feature_importance")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateXgboostReport(CheckedRule[Json]):
    """Never fire; count the rounds that ``trainwarden report`` can show."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "XGB004",
        "CreateXgboostReport",
        Severity.INFO,
        Tier.EVIDENCE,
        tuple(Need(name, "value") for name in _SHOWN),
        ("Make the report: trainwarden report RUN",),
        "watch with trainwarden.XGBoostCallback(train=dtrain)",
        default=False,
        sagemaker={},
    )

    def start(self) -> Json:
        """Nothing is kept."""
        return {}

    def inspects(self, obs: Observation) -> bool:
        """Say whether the step has something that only a boosted run has."""
        return obs.mode is TRAIN and any(obs.scalars.get(name) for name in _SHOWN)

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Find nothing."""
        del obs
        return state, ()
