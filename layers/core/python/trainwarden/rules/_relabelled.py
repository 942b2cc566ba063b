"""Labels that are mixed anew: a sample that comes again has another label than before."""

from __future__ import annotations

import math
from statistics import median

from trainwarden.model import Finding, Json, Observation
from trainwarden.rules import _batch
from trainwarden.rules._batch import fact
from trainwarden.rules._by_heart import KEPT
from trainwarden.rules._facts import several_optimizers

_AT_RANDOM = 0.95  # of the share by chance; labels of which two in five are wrong have 0.8
_GUESS, _LEARNED = 0.95, 0.9  # of the least that the entropy of such labels can be
_VARIED = 0.2  # share by chance: labels that are nearly all alike say nothing
_STEPS = 50  # so long at least, since tasks may take turns
_REMEDIES = (
    "Put inputs and labels in order by one and the same permutation, or index both by one list.",
    "Look up one sample in two epochs: its label must be the same.",
)


def follow_labels(seen: Json, train: Json, obs: Observation) -> Json:
    """[first step, 1 if anything was learned]: the loss was once well below a guess."""
    since, learned = seen or (obs.step, 0)
    guess = _entropy(fact(_batch.batches(obs).get("label/0", {}), "by_chance"))
    return [since, 1 if learned or _level(train) < _LEARNED * guess else 0]


def relabelled(seen: Json, train: Json, obs: Observation, repeats: int) -> Finding | None:
    """Tell of labels that do not stay with their samples.

    Args:
        seen: Of ``follow_labels``.
        train: Accuracy, share of the commonest class, loss and entropy of the last saved steps.
        obs: A training step.
        repeats: Least number of samples that came again.
    """
    facts = _batch.batches(obs).get("label/0", {})
    again, share = fact(facts, "repeated"), fact(facts, "relabelled")
    chance, level = fact(facts, "by_chance"), _level(train)
    if not (again >= repeats and chance >= _VARIED and share >= _AT_RANDOM * chance):
        return None
    if any(fact(one, "unreduced") > 0 for one in _batch.objectives(obs).values()):
        return None  # labels may be actions, drawn anew, whose losses are weighted by rewards
    since, learned = seen
    guessing = level >= _GUESS * _entropy(chance)
    if learned or not guessing or obs.step - since < _STEPS or several_optimizers(obs):
        return None
    message = (
        f"of {again:.0f} samples that came again {share:.0%} had another label than before, as "
        f"many as by chance ({chance:.0%}), and the loss of {level:.4g} is no better than a guess"
    )
    evidence = {"kind": "relabelled", "repeated": again, "chance": round(chance, 4)}
    name = next(iter(_batch.labels(obs)), "")
    limit = _AT_RANDOM * chance
    return Finding(obs.step, name, share, limit, message, since, evidence, _REMEDIES)


def _entropy(chance: float) -> float:
    """Least entropy in nats of labels of which such a share of pairs differ: Rényi's of order 2."""
    return math.inf if chance >= 1 else -math.log1p(-chance)


def _level(train: Json) -> float:
    losses = [one[2] for one in train if one[2] is not None]
    return median(losses) if len(losses) >= KEPT else math.nan
