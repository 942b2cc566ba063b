"""PoorWeightInitialization in SageMaker's meaning: any of three signs in the first steps."""

from __future__ import annotations

import numpy as np

from trainwarden.model import Finding, Json, Observation
from trainwarden.rules._progress import main_loss
from trainwarden.rules._selection import matching
from trainwarden.stats.catalog import INDEX
from trainwarden.stats.derived import STATISTICS


def first_signs(
    best: Json,
    obs: Observation,
    patterns: tuple[str, ...],
    *,
    ratio: float,
    least: float,
    patience: int,
) -> tuple[Json, Finding | None]:
    """Look at one of the first steps; returns the best loss so far, and what was found.

    Args:
        best: [step, loss], or None.
        obs: A training step.
        patterns: Of names of activations; empty for all.
        ratio: Of variances between layers that is too large.
        least: Range of a gradient that is too small, loss units per parameter unit.
        patience: Steps the loss may stand.
    """
    loss = main_loss(obs)
    if loss is not None and (best is None or loss[1] < best[1]):
        best = [obs.step, loss[1]]
    found = _spread(obs, patterns, ratio) or _narrow(obs, least)
    if found is None and best is not None and obs.step - best[0] >= patience:
        message = f"the loss has not improved for {obs.step - best[0]} steps"
        found = Finding(obs.step, "", float(obs.step - best[0]), float(patience), message, best[0])
    return best, found


def _spread(obs: Observation, patterns: tuple[str, ...], limit: float) -> Finding | None:
    chosen = ("activations",) if not patterns else ()
    rows = obs.among(matching(obs.layout, chosen, patterns))
    variances = STATISTICS["variance"].compute(obs.stats[rows])
    known = np.isfinite(variances) & (variances > 0)
    if np.count_nonzero(known) < 2 or variances[known].max() <= limit * variances[known].min():  # noqa: PLR2004 - two layers to compare
        return None
    ratio = float(min(variances[known].max() / variances[known].min(), 1e300))
    name = obs.layout.names[int(rows[int(np.nanargmax(np.where(known, variances, np.nan)))])]
    message = f"the variances of the activations differ by {ratio:.3g} times between layers"
    return Finding(obs.step, name, ratio, limit, message, obs.step)


def _narrow(obs: Observation, least: float) -> Finding | None:
    rows = obs.captured("gradients")
    ranges = STATISTICS["range"].compute(obs.stats[rows])
    low = (ranges < least) & (obs.stats[rows, INDEX["n"]] > 1)  # one element has no range
    if not low.any():
        return None
    first = int(np.flatnonzero(low)[0])
    name, value = obs.layout.names[int(rows[first])], float(ranges[first])
    message = f"the values of {name} lie within {value:.3g}"
    return Finding(obs.step, name, value, least, message, obs.step)
