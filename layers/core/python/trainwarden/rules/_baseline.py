"""What a network that has learned nothing reaches: the trivial level of the loss, where known."""

from __future__ import annotations

import math

from trainwarden.model import Need, Observation
from trainwarden.rules._facts import fact
from trainwarden.stats.derived import column

_LABELS = Need("labels", "variance")
_HALF, _ROUNDING = 0.5, 0.01
_UNDER_ENTROPY, _UNDER_GUESS = 0.99, 0.9
_ANSWERED = 0.2  # share of right answers above chance
_CLASSES = ("cross_entropy.classes", "nll_loss.classes")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_SPREADS = tuple(f"{name}.target_std" for name in _BINARY)
_CONVERGED_CLASSES, _CONVERGED_VARIANCE = 0.5, 0.1  # of ln C, of the targets' variance
_SQUARED = tuple(f"{name}_loss.target_std" for name in ("mse", "huber", "smooth_l1"))


def classes(obs: Observation) -> int:
    """Classes that a cross-entropy chooses from, at least 2; 0 if unknown."""
    known: int | None = obs.memo.get("baseline: classes")
    if known is None:
        known = obs.memo["baseline: classes"] = _classes(obs)
    return known


def _classes(obs: Observation) -> int:
    facts = obs.scalars.get("objective", {})
    for name in _CLASSES:
        count = facts.get(name, 0.0)
        if 1 < count < math.inf:
            return int(count)
    seen = max((len(v) for name, v in obs.labels.items() if name.startswith("label")), default=0)
    return seen if seen > 1 else 0


def choices(obs: Observation) -> float:
    """Classes that any loss chooses from, 2 for a binary one; without one, those of the labels.

    0.0 if unknown.
    """
    told = [v for k, v in obs.scalars.get("objective", {}).items() if k.endswith(".classes")]
    told = [v for v in told if 1 < v < math.inf]
    return max(told) if told else float(max((len(v) for v in obs.labels.values()), default=0))


def trivial_loss(obs: Observation) -> float:
    """Loss of a uniform guess among the classes of a plain cross-entropy, 0.0 if unknown.

    Weights, sums and ignored targets change it; as many classes as samples are contrastive, and
    what is answered well is no guess, whatever its loss.
    """
    facts = obs.scalars.get("objective", {})
    by_logits, by_logarithms = facts.get(_CLASSES[0], 0.0), facts.get(_CLASSES[1], 0.0)
    if (by_logits > 1) == (by_logarithms > 1):
        return 0.0
    name, count = ("cross_entropy", by_logits) if by_logits > 1 else ("nll_loss", by_logarithms)
    if count == math.inf or facts.get(f"{name}.accuracy", 0.0) > 1 / count + _ANSWERED:
        return 0.0
    if facts.get(f"{name}.weighted", 0.0) or facts.get(f"{name}.reduction_sum", 0.0):
        return 0.0
    return 0.0 if facts.get(f"{name}.target_size", 0.0) == count else math.log(count)


def targets_variance(obs: Observation) -> float:
    """Variance of this batch's real-valued targets, 0.0 if unknown."""
    known: float | None = obs.memo.get("baseline: variance")
    if known is None:
        known = obs.memo["baseline: variance"] = _targets_variance(obs)
    return known


def _targets_variance(obs: Observation) -> float:
    facts = obs.scalars.get("objective", {})
    for name in _SQUARED:
        std = facts.get(name, 0.0)
        if 0 < std * std < math.inf:
            return std * std
    if facts or obs.labels:
        return 0.0
    values = column(obs, _LABELS).values
    largest = float(values.max()) if values.size else 0.0
    return largest if math.isfinite(largest) else 0.0


def starts_converged(obs: Observation, loss: float) -> bool:
    """Say whether a first loss is too low for a network that has learned nothing yet."""
    count = classes(obs)
    if count:
        return bool(loss < _CONVERGED_CLASSES * math.log(count))
    return bool(loss < _CONVERGED_VARIANCE * targets_variance(obs))


def adversary(obs: Observation) -> bool:
    """Say whether all targets of the batch are alike, as a discriminator's are."""
    facts = obs.scalars.get("objective", {})
    return any(facts.get(name) == 0 for name in _SPREADS)


def better_than_a_guess(obs: Observation) -> float:
    """Level under which a classifier has learned something, 0.0 if unknown.

    For two classes under the entropy of their shares, from the targets' standard deviation; for
    more, where its answers show it, well under ln C.
    """
    for name in _BINARY:
        std = fact(obs, "objective", f"{name}.target_std")
        plain = fact(obs, "objective", f"{name}.weighted") == 0
        if plain and 0 < std <= _HALF + _ROUNDING:
            share = _HALF - math.sqrt(max(0.0, _HALF * _HALF - std * std))
            entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
            return _UNDER_ENTROPY * entropy
    for name in ("cross_entropy", "nll_loss"):
        count = fact(obs, "objective", f"{name}.classes")
        right = fact(obs, "objective", f"{name}.accuracy")
        if 1 < count < math.inf and right > 1 / count + _ANSWERED:
            return _UNDER_GUESS * math.log(count)
    return 0.0
