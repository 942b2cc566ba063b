"""Learning rates: the largest, its turns, and what networks warm up for."""

from __future__ import annotations

import math
from functools import lru_cache

from trainwarden.model import Layout, Observation
from trainwarden.rules._selection import once

NORMALISED = frozenset({"LayerNorm", "RMSNorm", "MultiheadAttention", "TransformerEncoderLayer"})
TOKENS = frozenset({"Embedding", "MultiheadAttention", "TransformerEncoderLayer"})
_TINY = 1e-30  # what is no rate


def largest_rate(obs: Observation) -> float | None:
    """The largest learning rate of the optimizer's groups, None if there is none."""
    if "largest rate" not in obs.memo:
        obs.memo["largest rate"] = _largest_rate(obs)
    found: float | None = obs.memo["largest rate"]
    return found


def _largest_rate(obs: Observation) -> float | None:
    facts = obs.scalars.get("optimizer")
    if not facts or "lr_0" not in facts:
        return None
    rates = [v for name in _rates(tuple(facts)) if math.isfinite(v := facts[name])]
    return max(0.0, *rates) if rates else None


@lru_cache(maxsize=64)
def _rates(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith("lr_"))


def needs_warmup(obs: Observation, *kinds: frozenset[str]) -> bool:
    """Say whether the optimizer is Adam-like and each set of module kinds has one in the model."""
    if not obs.scalars.get("optimizer", {}).get("adaptive_0", 0.0) > 0:
        return False

    def of_that_kind(layout: Layout) -> bool:
        found = {tensor.kind for tensor in layout.tensors}
        return all(found & some for some in kinds)

    return once(obs.layout, ("warm-up", kinds), of_that_kind)


def turned(state: list[float], rate: float, swing: float) -> list[float]:
    """Follow the turns of a rate that goes down by ``swing`` times and up again.

    Args:
        state: [highest or lowest rate since the last turn, turns]; rising while they are even.
        rate: The rate now.
        swing: Factor from which on it is a turn.
    """
    extreme, turns = state[0], int(state[1])
    rising = turns % 2 == 0
    fell, rose = rate * swing <= extreme and extreme > 0, rate >= max(swing * extreme, _TINY)
    if fell if rising else rose:
        return [rate, turns + 1]
    return [max(extreme, rate) if rising else min(extreme, rate), turns]
