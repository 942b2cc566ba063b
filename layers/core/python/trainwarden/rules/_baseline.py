"""What a network that has learned nothing reaches: the trivial level of the loss, where known."""

from __future__ import annotations

import math

from trainwarden.model import Collection, Need, Observation
from trainwarden.stats.derived import column

_LABELS = Need(Collection.LABELS.value, "variance")
_SQUARED = ("mse_loss.", "huber_loss.", "smooth_l1_loss.")


def classes(obs: Observation) -> int:
    """Classes that a cross-entropy chooses from, at least 2; 0 if unknown."""
    facts = obs.scalars.get("objective", {})
    for name in ("cross_entropy.classes", "nll_loss.classes"):
        count = facts.get(name, 0.0)
        if 1 < count < math.inf:
            return int(count)
    seen = max((len(v) for name, v in obs.labels.items() if name.startswith("label")), default=0)
    return seen if seen > 1 else 0


def targets_variance(obs: Observation) -> float:
    """Variance of this batch's real-valued targets, 0.0 if unknown."""
    facts = obs.scalars.get("objective", {})
    for function in _SQUARED:
        std = facts.get(f"{function}target_std", 0.0)
        if 0 < std * std < math.inf:
            return std * std
    if facts or obs.labels:
        return 0.0
    values = column(obs, _LABELS).values
    largest = float(values.max()) if values.size else 0.0
    return largest if math.isfinite(largest) else 0.0
