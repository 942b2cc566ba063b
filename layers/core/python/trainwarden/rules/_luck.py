"""Is a validation accuracy more than luck? Against predictions that know nothing of the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainwarden.model import Observation
from trainwarden.rules import _batch

_SURE = 2.0  # standard errors
_WEAK = 0.1  # what labels that say little may give, and few validation labels may hide


def gain(obs: Observation, accuracy: float) -> list[float]:
    """Return [accuracy above that of predictions that do not depend on the labels, its error].

    These are right with the sum over classes of the share of labels times that of predictions;
    where predictions are not known, with the share of the most frequent class at best.
    """
    name, counts = next(iter(_batch.labels(obs).items()))
    n = sum(counts.values())
    guessed = _batch.beside(obs, name, _batch.PREDICTED) or {}
    if not any(guessed.values()):
        guessed = {max(counts, key=lambda label: counts[label]): n}
    judged = sum(guessed.values())
    expected = sum(m * guessed.get(label, 0) for label, m in counts.items()) / (n * judged)
    return [
        round(accuracy - expected, 4),
        round(math.sqrt(max(expected * (1 - expected), 0.0) / judged), 4),
    ]


def mere_luck(gains: Sequence[Sequence[float]]) -> bool:
    """Say whether passes, of the same labels, show that next to nothing holds for validation."""
    above, error = (sum(values) / len(gains) for values in zip(*gains, strict=True))
    return bool(above <= _SURE * error and above + error <= _WEAK)
