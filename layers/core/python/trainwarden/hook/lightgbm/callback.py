"""The public face of the LightGBM hook: ``LightGBMCallback``.

Rounds are steps, saved as those of XGBoost are.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import lightgbm
from lightgbm.callback import CallbackEnv, EarlyStopException

from trainwarden.hook.exits import reason_of
from trainwarden.hook.lightgbm.rounds import LightGBMRounds
from trainwarden.hook.lightgbm.sample import Sample
from trainwarden.hook.save_config import SaveConfig
from trainwarden.hook.uploader import Limits
from trainwarden.hook.watching import Target, Watching
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore


class LightGBMCallback:
    """Watch a boosted training: ``lightgbm.train(…, callbacks=[LightGBMCallback(train)])``.

    Every argument is optional. It never raises into the training and never waits for the network,
    unless ``strict``; the model is the same with and without it. LightGBM does not say that it
    stopped early: then ``close`` ends the run, or the end of a ``with`` block or of the process.

    Args:
        train: The training data: a ``lightgbm.Dataset`` that was not used yet, or ``(X, y)``;
            labels, predictions and confusion are taken from up to 2,000 of its rows. Without it
            only losses, trees and importances are captured.
        job: Job name: letters, digits and hyphens, at most 63; found on SageMaker.
        out: ``s3://bucket`` or a folder; found on SageMaker.
        save_interval: Rounds from one saved round to the next; 10.
        dense_steps: Rounds saved without gaps at the beginning; 10.
        save_config: The same in SageMaker Debugger's words.
        training_set: Name of the training set among ``valid_sets``; None for the first whose name
            contains ``train``. If there is none, LightGBM is asked for its metrics on a saved
            round.
        rules: Rules for this job, as in docs/job-configuration.md.
        strict: Raise on trouble and wait for uploads at the end.
        close_timeout_s: Longest wait for the last uploads at the end; 20.
    """

    order = 25  # after what logs and records (10, 20), before early stopping (30)
    before_iteration = False

    def __init__(  # noqa: PLR0913 - one keyword for each documented option
        self,
        train: lightgbm.Dataset | tuple[Any, Any] | None = None,
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
            ("lightgbm", lightgbm.__version__),
            lambda session: LightGBMRounds(session, Sample.of(train, session), training_set),
            ends=True,
        )

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._watching.job

    def __call__(self, env: CallbackEnv) -> None:
        """Save the round if it is due.

        Raises:
            EarlyStopException: LightGBM's own way to end, when the cloud asks for it.
        """
        self._watching.call(LightGBMRounds.follow, env)
        if self._watching.stopping:
            self.close("stopped")
            raise EarlyStopException(env.iteration, env.evaluation_result_list or [])
        if env.iteration >= env.end_iteration - 1:
            self.close()

    def close(self, reason: str = "finished") -> None:
        """Upload what is left and write the end object; a second call does nothing."""
        self._watching.close(reason)

    def __enter__(self) -> LightGBMCallback:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close(reason_of(kind))
