"""A boosted training, round by round, whatever the library: which rounds are saved, and as what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from trainwarden.hook.boosted.predictions import Seen
from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Immediate
from trainwarden.model import Collection, Mode
from trainwarden.stats.reductions import row

MAX_FEATURES = 50  # kept of each kind of importance, the largest
Metrics = Mapping[str, float]  # metric → its value after this round


class Round(Protocol):
    """What a library tells of one round; asked only if the round is saved."""

    def rate(self) -> float:
        """Return the learning rate; NaN if it is unknown."""

    def losses(self, metrics: Metrics) -> list[str]:
        """Return the names of those metrics that are losses."""

    def training(self, evals: Mapping[str, Metrics], name: str) -> tuple[str, Metrics]:
        """Return name and metrics of the training set: of ``name`` if one was asked for."""

    def trees(self) -> Mapping[str, float]:
        """Return the shape of the round's trees; nothing if it has none."""

    def importances(self) -> Mapping[str, float]:
        """Return ``KIND/FEATURE`` → share."""

    def look(self) -> tuple[int, Seen] | None:
        """Return rows of the training set, and predictions of some; None without it."""


class Rounds(Immediate):
    """Follows a boosted training.

    Args:
        session: Where drafts go.
        training_set: Name of the training set among the evaluation sets; None to find it.
    """

    def __init__(self, session: Session, training_set: str | None) -> None:
        self._session, self._training_set = session, training_set or ""
        self._passes = 0
        self._start = session.options.schedule.start

    def due(self, number: int) -> bool:
        """Say whether round ``number`` is saved."""
        return self._session.due(self._start + number)

    def save(self, number: int, evals: Mapping[str, Metrics], told: Round) -> None:
        """Save a round: TRAIN, and EVAL with the losses of the first other set."""
        step = self._start + number
        training, metrics = told.training(evals, self._training_set)
        draft = self._session.draft(step, Mode.TRAIN, step)
        _add_metrics(draft, metrics, told)
        if math.isfinite(rate := told.rate()):
            draft.scalar(Collection.OPTIMIZER, "lr_0", rate)
        draft.facts("trees", told.trees())
        draft.facts("feature_importance", told.importances())
        if (looked := told.look()) is not None:
            self._add_sample(draft, *looked)
        draft.scalars = {name: values for name, values in draft.scalars.items() if values}
        self._session.submit(draft)
        for name in evals:
            if name != training:
                draft = self._session.draft(step, Mode.EVAL, self._passes)
                _add_metrics(draft, evals[name], told)
                if not draft.empty:
                    self._passes += 1
                    self._session.submit(draft)
                break

    def _add_sample(self, draft: Draft, rows: int, seen: Seen) -> None:
        draft.scalar("trees", "samples", float(rows))
        draft.labels.update(seen.labels)
        draft.facts(Collection.OBJECTIVE, seen.facts)
        draft.facts("residuals", seen.residuals)
        for info, values in seen.tensors:
            table = row(np.ascontiguousarray(values), dtype=info.dtype)[None]
            draft.rows(np.array([self._session.row(info)]), table)


def named_training(evals: Mapping[str, Any]) -> str:
    """Return the first set whose name contains ``train``; empty if none does."""
    return next((name for name in evals if "train" in name.lower()), "")


def _add_metrics(draft: Draft, metrics: Metrics, told: Round) -> None:
    losses = told.losses(metrics)
    for name, value in metrics.items():
        draft.scalar(Collection.LOSSES if name in losses else Collection.METRICS, name, value)


def largest_shares(kind: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Return the largest importances as shares of their sum, ``KIND/FEATURE`` → 0 to 1.

    ``KIND/`` followed by nothing is the number of features with any importance.
    """
    values = {name: value for name, value in scores.items() if value != 0}
    total = sum(values.values())
    if not total > 0:
        return {}
    largest = sorted(values, key=lambda name: (-values[name], name))[:MAX_FEATURES]
    found = {f"{kind}/{name}": values[name] / total for name in largest}
    return {**found, f"{kind}/": float(len(values))}
