"""Targets that a loss function has no meaning for."""

from __future__ import annotations

import math

from trainwarden.model import Finding, Json, Observation
from trainwarden.rules import _batch
from trainwarden.rules._batch import Facts, fact
from trainwarden.rules._targets import no_probabilities

_SMOOTHED = (-0.5, 1.5)
_SHARE = 0.001  # of targets


def impossible(obs: Observation) -> Finding | None:
    """Tell of the first loss function, by name, that was given such targets."""
    for function, facts in sorted(_batch.objectives(obs).items()):
        share = fact(facts, "impossible_targets")
        if not share > _SHARE:
            continue
        low, high = fact(facts, "target_min"), fact(facts, "target_max")
        if not _meaningless(function, facts, obs) or no_probabilities(function, facts, obs):
            continue
        message = (
            f"{share:.1%} of the targets of {function} mean nothing to it: "
            f"they go from {low:.4g} to {high:.4g}"
        )
        evidence: dict[str, Json] = {"kind": "impossible", "function": function}
        evidence |= {k: v for k, v in (("min", low), ("max", high)) if not math.isnan(v)}
        label = next(iter(_batch.labels(obs)), "")
        return Finding(obs.step, label, share, 0.0, message, obs.step, evidence)
    return None


def _meaningless(function: str, facts: Facts, obs: Observation) -> bool:
    losses = obs.scalars.get("losses", {})
    if any(not math.isfinite(v) for v in losses.values()):
        return True
    if function.startswith("binary"):
        low, high = fact(facts, "target_min"), fact(facts, "target_max")
        return low < _SMOOTHED[0] or high > _SMOOTHED[1]
    return function in {"cross_entropy", "nll_loss"}
