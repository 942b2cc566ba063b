"""A loader that always gives the same batch: told by a validation that is far worse."""

from __future__ import annotations

import math

import numpy as np

from trainwarden.model import Finding, Json, Observation
from trainwarden.rules import _batch, _progress
from trainwarden.rules._batch import fact
from trainwarden.rules._validation_inputs import WORSE
from trainwarden.stats.catalog import INDEX

SURE_SAVES = 8  # saved steps with the same batch
_FINGERPRINT = [INDEX["fp_xor"], INDEX["fp_sum"]]
_SMALL, _MORE, _HALVED = 64, 2.0, 0.5
_REMEDIES = (
    "Make one iterator: for batch in loader, not next(iter(loader)) in each step.",
    "Shuffle: DataLoader(…, shuffle=True).",
)


def begin() -> Json:
    """No batch was seen."""
    return {"batch": "", "same": 0, "size": 0.0, "loss": _progress.begin()}


def follow(state: Json, obs: Observation) -> Json | None:
    """Compare a training step's inputs with those before; None once they differed."""
    row = obs.layout.row_of.get("input/0", -1)
    if not 0 <= row < obs.stats.shape[0] or math.isnan(obs.stats[row, 0]):
        return state
    samples = fact(_batch.inputs(obs).get("input/0", {}), "samples")
    # The columns are bit patterns, not numbers.
    batch = np.ascontiguousarray(obs.stats[row, _FINGERPRINT]).tobytes().hex()
    if state["batch"] not in ("", batch) or not samples <= _SMALL:
        return None
    labels = sum(next(iter(_batch.labels(obs).values()), {}).values())
    return {
        "batch": batch,
        "same": state["same"] + (state["batch"] == batch),
        "size": float(labels) or samples,
        "loss": _progress.follow(state["loss"], obs),
    }


def repeated(state: Json, obs: Observation) -> Finding | None:
    """Judge it at a validation pass."""
    loss, last = _progress.main_loss(obs), state["loss"]["last"][-1:]
    if state["same"] < SURE_SAVES or loss is None or not last:
        return None
    size = max((sum(c.values()) for c in _batch.labels(obs).values()), default=0)
    if size < _MORE * state["size"] or loss[1] < WORSE * last[0]:
        return None
    if not _progress.fall(state["loss"]) > _HALVED:
        return None
    times = state["same"] + 1
    message = (
        f"the batch is bit by bit the same at {times} saved steps in a row, and "
        f"the validation loss {loss[1]:.4g} is far above the training loss {last[0]:.4g}"
    )
    evidence = {"kind": "same_batch", "saves": times}
    since = state["loss"]["at"]
    return Finding(
        obs.step, "", float(times), float(SURE_SAVES), message, since, evidence, _REMEDIES
    )
