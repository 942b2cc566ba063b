"""What is captured of a round: losses, trees, importances, predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xgboost

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.xgboost import trees
from trainwarden.hook.xgboost.predictions import Sample
from trainwarden.model import Collection, Mode, TensorInfo
from trainwarden.stats.reductions import row

# What gets better by getting smaller: XGBoost's own losses. Others are metrics.
LOSSES = (
    "rmse",
    "rmsle",
    "mae",
    "mape",
    "mphe",
    "logloss",
    "mlogloss",
    "poisson-nloglik",
    "gamma-nloglik",
    "cox-nloglik",
    "gamma-deviance",
    "tweedie-nloglik",
    "aft-nloglik",
    "quantile",
    "expectile",
)
_LAST_RESORT = ("error", "merror")  # shares of wrong answers: coarse, a loss if there is no other

Evals = Mapping[str, Mapping[str, Any]]


class Rounds:
    """Follows a boosted training, round by round.

    Args:
        session: Where drafts go.
        train: The training matrix, if it was given.
        training_set: Name of the training set among the evaluation sets; None to find it.
    """

    def __init__(
        self, session: Session, train: xgboost.DMatrix | None, training_set: str | None
    ) -> None:
        self._session, self._train, self._training_set = session, train, training_set
        self._sample: Sample | None = None
        self._rate = float("nan")
        self._passes = 0
        self._start = session.options.schedule.start

    def detach(self) -> None:
        """Nothing hangs in XGBoost."""

    def settle(self) -> None:
        """Every draft is submitted at once."""

    def finish(self) -> None:
        """Every draft is submitted at once."""

    def begin(self, model: Any) -> None:
        """Read learning rate and objective; nothing if it is no single booster (``xgboost.cv``)."""
        if not isinstance(model, xgboost.Booster):
            return
        learner = json.loads(model.save_config())["learner"]
        parameters = learner.get("gradient_booster", {}).get("tree_train_param", {})
        self._rate = float(parameters.get("learning_rate", parameters.get("eta", "nan")))
        objective = learner.get("objective", {}).get("name", "")
        if self._train is not None and self._sample is None:
            self._sample = Sample(self._train, objective)

    def follow(self, model: Any, epoch: int, evals: Evals) -> None:
        """Save round ``epoch`` if it is due."""
        step = self._start + epoch
        if not self._session.options.schedule.saves(step):
            return
        names = list(evals)
        training = self._training_set or next(
            (name for name in names if "train" in name.lower()), names[0] if names else ""
        )
        draft = self._session.draft(step, Mode.TRAIN, step)
        _add_losses(draft, evals.get(training, {}))
        if np.isfinite(self._rate):
            draft.scalar(Collection.OPTIMIZER, "lr_0", self._rate)
        if isinstance(model, xgboost.Booster):
            self._add_model(draft, model)
        self._session.submit(draft)
        for name in names:
            if name != training:
                self._add_validation(step, evals[name])
                break

    def _add_validation(self, step: int, metrics: Mapping[str, Any]) -> None:
        draft = self._session.draft(step, Mode.EVAL, self._passes)
        _add_losses(draft, metrics)
        if not draft.empty:
            self._passes += 1
            self._session.submit(draft)

    def _add_model(self, draft: Draft, model: xgboost.Booster) -> None:
        rounds = model.num_boosted_rounds()
        for name, value in trees.shape(model, rounds - 1).items():
            draft.scalar("trees", name, value)
        for name, value in trees.importances(model).items():
            draft.scalar("feature_importance", name, value)
        if self._sample is not None:
            seen = self._sample.look(model)
            draft.scalar("trees", "samples", float(self._sample.rows))
            draft.labels.update(seen.labels)
            for name, value in seen.facts.items():
                draft.scalar(Collection.OBJECTIVE, name, value)
            for name, value in seen.residuals.items():
                draft.scalar("residuals", name, value)
            for info, values in seen.tensors:
                self._add_row(draft, info, values)

    def _add_row(self, draft: Draft, info: TensorInfo, values: Any) -> None:
        table = row(np.ascontiguousarray(values), dtype=info.dtype)[None]
        draft.rows(np.array([self._session.row(info)]), table)


def _add_losses(draft: Draft, metrics: Mapping[str, Any]) -> None:
    """Add the last value of each metric of one evaluation set."""
    last = {name: _last(values) for name, values in metrics.items()}
    losses = [name for name in last if name.partition("@")[0] in LOSSES]
    losses = losses or [name for name in last if name.partition("@")[0] in _LAST_RESORT]
    for name, value in last.items():
        collection = Collection.LOSSES if name in losses else Collection.METRICS
        draft.scalar(collection, name, value)


def _last(values: Any) -> float:
    """Return the newest value; of cross validation's pairs the mean."""
    newest = values[-1]
    return float(newest[0] if isinstance(newest, tuple) else newest)
