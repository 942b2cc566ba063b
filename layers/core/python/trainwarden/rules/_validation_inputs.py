"""Inputs of validation that are not like those of training."""

from __future__ import annotations

import math

from trainwarden.model import Finding, Observation
from trainwarden.rules import _batch
from trainwarden.rules._batch import fact
from trainwarden.rules._progress import main_loss

WORSE = 1.5  # times the training loss
_PART = 0.05  # of the way that the training loss has come: less is no harm
_APART, _WIDER, _FEWEST = 1.0, 1.8, 64  # std of training; factor; samples of a pass
_MOVED, _TEN = 0.25, 10.0  # what noise that is added in training does not explain


def other(obs: Observation) -> bool:
    """Say whether the inputs of a validation pass are not like those of training."""
    facts = _batch.inputs(obs).get("input/0", {})
    apart, wider = fact(facts, "apart"), fact(facts, "wider")
    if not fact(facts, "seen") >= _FEWEST or math.isnan(apart) or math.isnan(wider):
        return False
    narrower = wider < 1 / _TEN or (wider < 1 / _WIDER and apart > _MOVED)
    return apart > _APART or wider > _WIDER or narrower


def differs(obs: Observation, trained: float, start: float, since: int) -> Finding | None:
    """Tell of such inputs if the loss suffers.

    Args:
        obs: A validation pass.
        trained: The training loss.
        start: Where that began.
        since: Step of the first such pass.
    """
    _, value = main_loss(obs) or ("", math.nan)
    if not value > max(WORSE * trained, trained + _PART * max(start - trained, 0.0)):
        return None
    facts = _batch.inputs(obs)["input/0"]
    apart, wider = fact(facts, "apart"), fact(facts, "wider")
    message = (
        f"the inputs of validation lie {apart:.3g} standard deviations from those of training "
        f"and vary {wider:.3g} times as much, and its loss of {value:.4g} is far above the "
        f"training loss of {trained:.4g}"
    )
    evidence = {"kind": "validation_differs", "wider": wider, "samples": fact(facts, "seen")}
    return Finding(obs.step, "input/0", apart, _APART, message, since, evidence)
