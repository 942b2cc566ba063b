"""What XGBoost tells of a round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xgboost

from trainwarden.hook.boosted.predictions import Seen
from trainwarden.hook.boosted.rounds import Metrics, Rounds, named_training
from trainwarden.hook.session import Session
from trainwarden.hook.xgboost import trees
from trainwarden.hook.xgboost.predictions import Sample

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


class XGBoostRounds(Rounds):
    """Follows XGBoost's callback protocol.

    Args:
        session: Where drafts go.
        train: The training matrix, if it was given.
        training_set: Name of the training set among the evaluation sets; None to find it.
    """

    def __init__(
        self, session: Session, train: xgboost.DMatrix | None, training_set: str | None
    ) -> None:
        super().__init__(session, training_set)
        self._train = train
        self.sample: Sample | None = None
        self.rate = float("nan")

    def begin(self, model: Any) -> None:
        """Read learning rate and objective; nothing if it is no single booster (``xgboost.cv``)."""
        if not isinstance(model, xgboost.Booster):
            return
        learner = json.loads(model.save_config())["learner"]
        parameters = learner.get("gradient_booster", {}).get("tree_train_param", {})
        self.rate = float(parameters.get("learning_rate", parameters.get("eta", "nan")))
        objective = learner.get("objective", {}).get("name", "")
        if self._train is not None and self.sample is None:
            self.sample = Sample(self._train, objective)

    def follow(self, model: Any, epoch: int, evals: Evals) -> None:
        """Save round ``epoch`` if it is due."""
        if self.due(epoch):
            last = {
                name: {metric: _last(values) for metric, values in metrics.items()}
                for name, metrics in evals.items()
            }
            self.save(epoch, last, _Round(self, model))


class _Round:
    """One round; of cross validation's many models nothing but the metrics is known."""

    def __init__(self, rounds: XGBoostRounds, model: Any) -> None:
        self._rounds = rounds
        self._model = model if isinstance(model, xgboost.Booster) else None

    def rate(self) -> float:
        return self._rounds.rate

    def losses(self, metrics: Metrics) -> list[str]:
        found = [name for name in metrics if name.partition("@")[0] in LOSSES]
        return found or [name for name in metrics if name.partition("@")[0] in _LAST_RESORT]

    def training(self, evals: Mapping[str, Metrics], name: str) -> tuple[str, Metrics]:
        found = name or named_training(evals) or next(iter(evals), "")
        return found, evals.get(found, {})

    def trees(self) -> Mapping[str, float]:
        if self._model is None:
            return {}
        return trees.shape(self._model, self._model.num_boosted_rounds() - 1)

    def importances(self) -> Mapping[str, float]:
        return {} if self._model is None else trees.importances(self._model)

    def look(self) -> tuple[int, Seen] | None:
        sample = self._rounds.sample
        if self._model is None or sample is None:
            return None
        return sample.rows, sample.look(self._model)


def _last(values: Any) -> float:
    """Return the newest value; of cross validation's pairs the mean."""
    newest = values[-1]
    return float(newest[0] if isinstance(newest, tuple) else newest)
