"""The public face of the scikit-learn hook: ``PartialFit``."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import sklearn

from trainwarden.hook.exits import reason_of
from trainwarden.hook.sklearn.steps import Steps
from trainwarden.hook.uploader import Limits
from trainwarden.hook.watching import Target, Watching
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore


class PartialFit:
    """Watch an estimator that learns step by step: call this ``partial_fit`` in place of its own.

    Every argument but the first is optional. It never raises into the training and never waits for
    the network, unless ``strict``; what the estimator itself raises goes through. The model is the
    same with and without it.

    Args:
        model: ``SGDClassifier``, ``SGDRegressor``, ``MLPClassifier``, ``MLPRegressor`` and what
            else has ``partial_fit`` with ``coef_`` or ``coefs_``; of others only inputs
            and counts of labels are captured.
        validation: ``(X, y)``, up to 2,000 rows of which are looked at after each saved step.
        job: Job name: letters, digits and hyphens, at most 63; found on SageMaker.
        out: ``s3://bucket`` or a folder; found on SageMaker.
        save_interval: Steps from one saved step to the next; 10.
        dense_steps: Steps saved without gaps at the beginning; 10.
        rules: Rules for this job, as in docs/job-configuration.md.
        strict: Raise on trouble and wait for uploads at the end.
        close_timeout_s: Longest wait for the last uploads at the end; 20.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each documented option
        self,
        model: Any,
        *,
        validation: tuple[Any, Any] | None = None,
        job: str | None = None,
        out: str | os.PathLike[str] | None = None,
        save_interval: int | None = None,
        dense_steps: int | None = None,
        rules: Json = None,
        strict: bool = False,
        close_timeout_s: float | None = None,
        _store: ObjectStore | None = None,
        _limits: Limits | None = None,
    ) -> None:
        self.model = model
        asked = {
            "save_interval": save_interval,
            "dense_steps": dense_steps,
            "rules": rules,
            "strict": strict,
            "close_timeout_s": close_timeout_s,
        }
        self._watching = Watching(
            asked,
            Target(job, out, _store, _limits),
            ("scikit-learn", sklearn.__version__),
            lambda session: Steps(session, model, validation),
        )

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._watching.job

    @property
    def stop_requested(self) -> bool:
        """True once the cloud asks for the end: leave the loop."""
        return self._watching.stopping

    def partial_fit(self, X: Any, y: Any = None, **arguments: Any) -> PartialFit:  # noqa: N803 - as there
        """Make one step: call the model's ``partial_fit`` with the same arguments."""
        self._watching.call(Steps.before, X, y)
        try:
            given = (X,) if y is None else (X, y)
            self.model.partial_fit(*given, **arguments)
        finally:
            self._watching.call(Steps.after)
        return self

    def close(self, reason: str = "finished") -> None:
        """Upload what is left and write the end object; a second call does nothing."""
        self._watching.close(reason)

    def __enter__(self) -> PartialFit:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close(reason_of(kind))
