"""USR901 OneLayerLearns: one layer takes nearly all of the gradient.

**Why it hurts.** The other layers hardly move: depth that is paid for and not used.

**How it is computed.** Of the squared L2 norms of all weights' gradients (unit: the gradient's,
squared) the largest tensor's share is taken at every saved training step. It fires when that share
has been above ``share`` for ``patience`` saved steps in a row, and again only after it was not.

**Remedy.** Normalise between layers; lower the weight of the loss that reaches that layer alone.

**False alarms to expect.** Fine-tuning with all but the head frozen: raise ``least_tensors``.

**Missing data.** Gradients that are not finite or all zero are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from trainwarden.model import Finding, Json, Mode, Need, Observation, RuleMeta, Severity, Tier
from trainwarden.rules import Bounds, CheckedRule, param
from trainwarden.stats.derived import column

NORM = Need("gradients", "l2")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneLayerLearns(CheckedRule[Json]):
    """Fire when one tensor has nearly all of the gradient."""

    meta: ClassVar[RuleMeta] = RuleMeta(
        "USR901",
        "OneLayerLearns",
        Severity.WARNING,
        Tier.EVIDENCE,
        (NORM,),
        ("Normalise between layers.", "Lower the weight of the loss that reaches it alone."),
        "let watch() save gradients, as it does by default",
    )

    share: float = param(0.95, "Largest share that is fine.", bounds=Bounds(gt=0, lt=1))
    least_tensors: int = param(3, "Gradients there must be.", bounds=Bounds(ge=2))
    patience: int = param(5, "Bad steps in a row.", "saved steps", bounds=Bounds(ge=1))

    def start(self) -> Json:
        """No step was bad: [saved steps in a row, first of them]."""
        return [0, -1]

    def advance(self, state: Json, obs: Observation) -> tuple[Json, Sequence[Finding]]:
        """Extend or end the streak."""
        names, _, norms = column(obs, NORM)
        squares = norms * norms
        total = float(squares.sum()) if len(names) >= self.least_tensors else 0.0
        if obs.mode is not Mode.TRAIN or not (0 < total < np.inf):
            return state, ()
        worst = int(squares.argmax())
        share = float(squares[worst]) / total
        if share <= self.share:
            return self.start(), ()
        count, since = state[0] + 1, obs.step if state[0] == 0 else state[1]
        if count != self.patience:
            return [count, since], ()
        text = f"{names[worst]} takes {share:.1%} of the gradient since step {since}"
        found = Finding(obs.step, names[worst], share, self.share, text, since)
        return [count, since], [found]
