"""Random labels by the losses: what is learned by heart holds for nothing else."""

from __future__ import annotations

import math
from statistics import median

from trainwarden.model import Finding, Json, Observation
from trainwarden.rules import _batch

KEPT = 5  # saved steps of training
_UNDER, _NEVER, _RISEN = 0.95, 0.98, 1.03  # of the entropy of the class shares
_LONG, _TWELVE = 6, 12  # validation passes
_EIGHT = 8  # classes; where there are fewer, few rows with weak labels look the same
NEARLY, _REST, _BACK, _BY_HEART, _APART = 0.97, 0.985, 0.01, 0.93, 0.06  # of that entropy
_CLASSES, _MANY = 4, 200  # fewer classes and validation labels do not show what is weakly learned
_STARTS = (0.7, 1.6)  # of that entropy: where a plain cross-entropy begins


def by_heart(state: Json, obs: Observation, passes: int) -> Finding | None:
    """Tell what is learned by heart by the losses, before the accuracy shows it.

    Args:
        state: ``train``: accuracy, share of the commonest class, loss and entropy of the last saved
            steps; ``guess``: entropy, least and last losses of validation; ``passes``; ``start``.
        obs: A validation pass.
        passes: Least number of them.
    """
    entropy, least, last = state["guess"]
    counts = next(iter(_batch.labels(obs).values()), {})
    known = [seen[2:] for seen in state["train"] if seen[2] is not None and seen[3] > 0]
    if not _plain(state) or len(counts) < _CLASSES or sum(counts.values()) < _MANY:
        return None
    if state["passes"] < max(_LONG, passes) or len(known) < KEPT or least is None:
        return None
    level, shares = (sum(values) / len(known) for values in zip(*known, strict=True))
    share, rest = level / min(entropy, shares), median(last)
    never = least >= _NEVER and rest > _RISEN and share < _UNDER
    many = state["passes"] >= _TWELVE and len(counts) >= _EIGHT
    if not never and not (many and _agrees_by_chance(least, rest, share)):
        return None
    message = (
        f"the training loss is {level:.4g}, yet in {state['passes']} validation passes it was "
        f"never better than {least * entropy:.4g}; to know how frequent the classes are gives "
        f"{entropy:.4g}: labels do not belong to their inputs, or these say nothing of them"
    )
    seen = [accuracy for accuracy, *_ in state["train"]]
    evidence = {"kind": "random_labels", "train": sum(seen) / len(seen), "passes": state["passes"]}
    name = next(iter(_batch.labels(obs)), "")
    return Finding(obs.step, name, least, _NEVER, message, obs.step, evidence, confidence=0.8)


def _plain(state: Json) -> bool:
    """Say whether the run began where a plain cross-entropy does."""
    entropy, start = state["guess"][0], state["start"]
    return start is not None and bool(_STARTS[0] * entropy <= start <= _STARTS[1] * entropy)


def _agrees_by_chance(least: float, last: float, train: float) -> bool:
    """Say whether losses, as shares of the entropy, show that nothing learned holds elsewhere.

    Labels that belong to other rows agree a little with groups of rows, by chance.
    """
    rests = last >= max(_REST, least + _BACK)
    return least >= NEARLY and rests and train < min(_BY_HEART, last - _APART)


def entropy_of(obs: Observation) -> float:
    """Entropy of the shares that a batch's labels are drawn from (Miller and Madow's estimate)."""
    counts = [m for m in next(iter(_batch.labels(obs).values()), {}).values() if m > 0]
    n = sum(counts)
    if not n:
        return 0.0
    return math.log(n) - sum(m * math.log(m) for m in counts) / n + (len(counts) - 1) / (2 * n)
