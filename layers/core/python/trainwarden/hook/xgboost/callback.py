"""The public face of the XGBoost hook: ``XGBoostCallback``.

Rounds are steps. A saved round is an observation of mode TRAIN (losses of the training set, trees,
importances, predictions), and one of mode EVAL with the losses of the validation set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import xgboost

from trainwarden.hook.save_config import SaveConfig
from trainwarden.hook.uploader import Limits
from trainwarden.hook.watching import Target, Watching
from trainwarden.hook.xgboost.rounds import XGBoostRounds
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore


class XGBoostCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc,unused-ignore]
    """Watch a boosted training: ``xgboost.train(…, callbacks=[XGBoostCallback(train=dtrain)])``.

    Every argument is optional. It never raises into the training and never waits for the network,
    unless ``strict``; the model is the same with and without it.

    Args:
        train: The training matrix: labels, predictions and confusion are taken from up to 2,000
            of its rows. Without it only losses, trees and importances are captured.
        job: Job name: letters, digits and hyphens, at most 63; found on SageMaker.
        out: ``s3://bucket`` or a folder; found on SageMaker.
        save_interval: Rounds from one saved round to the next; 10.
        dense_steps: Rounds saved without gaps at the beginning; 10.
        save_config: The same in SageMaker Debugger's words.
        training_set: Name of the training set in ``evals``; None for the first whose name
            contains ``train``, else the first.
        rules: Rules for this job, as in docs/job-configuration.md.
        strict: Raise on trouble and wait for uploads at the end.
        close_timeout_s: Longest wait for the last uploads at the end; 20.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each documented option
        self,
        train: xgboost.DMatrix | None = None,
        *,
        job: str | None = None,
        out: str | os.PathLike[str] | None = None,
        save_interval: int | None = None,
        dense_steps: int | None = None,
        save_config: SaveConfig | None = None,
        training_set: str | None = None,
        rules: Json = None,
        strict: bool = False,
        close_timeout_s: float | None = None,
        _store: ObjectStore | None = None,
        _limits: Limits | None = None,
    ) -> None:
        super().__init__()
        asked = {
            "save_interval": save_interval,
            "save_config": save_config,
            "dense_steps": dense_steps,
            "rules": rules,
            "strict": strict,
            "close_timeout_s": close_timeout_s,
        }
        self._watching = Watching(
            asked,
            Target(job, out, _store, _limits),
            ("xgboost", xgboost.__version__),
            lambda session: XGBoostRounds(session, train, training_set),
            ends=True,
        )

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._watching.job

    def before_training(self, model: Any) -> Any:
        """Read what the booster was configured with."""
        self._watching.call(XGBoostRounds.begin, model)
        return model

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Save the round if it is due; True ends the training, when the cloud asks for it."""
        self._watching.call(XGBoostRounds.follow, model, epoch, evals_log)
        return self._watching.stopping

    def after_training(self, model: Any) -> Any:
        """Upload what is left."""
        self.close("stopped" if self._watching.stopping else "finished")
        return model

    def close(self, reason: str = "finished") -> None:
        """Upload what is left and write the end object; a second call does nothing."""
        self._watching.close(reason)

    def __deepcopy__(self, memo: dict[int, Any]) -> XGBoostCallback:
        return self  # scikit-learn clones estimators with their callbacks; a run has one watch

    def __reduce__(self) -> tuple[Any, ...]:
        return _inert, ()


def _inert() -> xgboost.callback.TrainingCallback:
    """What a pickled estimator has in place of the callback."""
    return xgboost.callback.TrainingCallback()
