"""What LightGBM tells of a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightgbm
from lightgbm.callback import CallbackEnv

from trainwarden.hook.boosted.predictions import Seen
from trainwarden.hook.boosted.rounds import Metrics, Rounds, largest_shares, named_training
from trainwarden.hook.lightgbm import trees
from trainwarden.hook.lightgbm.sample import Sample
from trainwarden.hook.session import Session

# What gets better by getting smaller: LightGBM's own losses. Others are metrics.
LOSSES = (
    "l1",
    "l2",
    "rmse",
    "quantile",
    "mape",
    "huber",
    "fair",
    "poisson",
    "gamma",
    "gamma_deviance",
    "tweedie",
    "binary_logloss",
    "multi_logloss",
    "cross_entropy",
    "cross_entropy_lambda",
    "kullback_leibler",
)
_LAST_RESORT = ("binary_error", "multi_error")  # coarse: a loss if there is no other
_RATES = ("learning_rate", "shrinkage_rate", "eta")
_RATE = 0.1  # LightGBM's


class LightGBMRounds(Rounds):
    """Follows LightGBM's callback protocol.

    Args:
        session: Where drafts go.
        sample: Rows of the training data, if it was given.
        training_set: Name of the training set among the evaluation sets; None to find it.
    """

    def __init__(self, session: Session, sample: Sample | None, training_set: str | None) -> None:
        super().__init__(session, training_set)
        self.sample = sample

    def follow(self, env: CallbackEnv) -> None:
        """Save the round if it is due."""
        if self.due(env.iteration):
            self.save(env.iteration, _by_set(env.evaluation_result_list), _Round(self, env))


class _Round:
    """One round; of cross validation's many models nothing but the metrics is known."""

    def __init__(self, rounds: LightGBMRounds, env: CallbackEnv) -> None:
        self._sample, self._params = rounds.sample, env.params
        self._model = env.model if isinstance(env.model, lightgbm.Booster) else None
        # One round's text is short; only its header says what is minimised.
        newest = 0 if self._model is None else max(self._model.current_iteration() - 1, 0)
        self._text = (
            "" if self._model is None else self._model.model_to_string(1, start_iteration=newest)
        )

    def rate(self) -> float:
        known = [float(self._params[name]) for name in _RATES if name in self._params]
        return known[0] if known else _RATE

    def losses(self, metrics: Metrics) -> list[str]:
        found = [name for name in metrics if name.partition("@")[0] in LOSSES]
        return found or [name for name in metrics if name in _LAST_RESORT]

    def training(self, evals: Mapping[str, Metrics], name: str) -> tuple[str, Metrics]:
        found = name or named_training(evals)
        if found in evals or self._model is None:
            return found, evals.get(found, {})
        return found, next(iter(_by_set(self._model.eval_train()).values()), {})

    def trees(self) -> Mapping[str, float]:
        return trees.shape(self._text)

    def importances(self) -> Mapping[str, float]:
        return {} if self._model is None else _importances(self._model)

    def look(self) -> tuple[int, Seen] | None:
        if self._model is None or self._sample is None:
            return None
        objective = trees.objective(self._text)
        return self._sample.rows, self._sample.look(self._model, objective, self._params)


def _importances(model: lightgbm.Booster) -> dict[str, float]:
    names = model.feature_name()
    splits = model.feature_importance("split").tolist()
    gains = model.feature_importance("gain").tolist()
    average = [gain / max(count, 1) for gain, count in zip(gains, splits, strict=True)]
    found: dict[str, float] = {}
    for kind, values in (("weight", splits), ("total_gain", gains), ("gain", average)):
        found.update(largest_shares(kind, dict(zip(names, values, strict=True))))
    return found


def _by_set(results: Any) -> dict[str, dict[str, float]]:
    """Return set → metric → value; LightGBM 3 named the set of cross validation in the metric."""
    found: dict[str, dict[str, float]] = {}
    for result in results or ():
        name, metric = result[0], result[1]
        if name == "cv_agg":
            name, _, metric = metric.partition(" ")
        found.setdefault(name, {})[metric] = float(result[2])
    return found
