"""The public face of the JAX hook: ``PytreeWatch``."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import jax

from trainwarden.hook.exits import reason_of
from trainwarden.hook.jax.steps import Steps
from trainwarden.hook.uploader import Limits
from trainwarden.hook.watching import Target, Watching
from trainwarden.model import Json
from trainwarden.store.ports import ObjectStore


class PytreeWatch:
    """Watch a training whose weights are a pytree: call ``observe`` once a step.

    Every argument is optional. It reads what it is given and changes nothing. It never raises into
    the training and never waits for the network, unless ``strict``. On a saved step it waits for
    the arrays, on others it touches none.

    Args:
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
        *,
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
        asked = {
            "save_interval": save_interval,
            "dense_steps": dense_steps,
            "rules": rules,
            "strict": strict,
            "close_timeout_s": close_timeout_s,
        }
        self._watching = Watching(
            asked, Target(job, out, _store, _limits), ("jax", jax.__version__), Steps
        )

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._watching.job

    @property
    def stop_requested(self) -> bool:
        """True once the cloud asks for the end: leave the loop."""
        return self._watching.stopping

    def observe(
        self,
        params: Any,
        grads: Any = None,
        loss: Any = None,
        *,
        inputs: Any = None,
        learning_rate: float | None = None,
    ) -> None:
        """Look at a step: outside of ``jit``, before the update.

        Args:
            params: Pytree of the weights that ``grads`` and ``loss`` were computed with.
            grads: Pytree of the same structure.
            loss: Scalar.
            inputs: Array of the batch, samples first.
            learning_rate: Of this step.
        """
        self._watching.call(Steps.observe, params, grads, loss, inputs, learning_rate)

    def evaluate(self, loss: Any) -> None:
        """Tell the mean loss of a validation pass."""
        self._watching.call(Steps.evaluate, loss)

    def close(self, reason: str = "finished") -> None:
        """Upload what is left and write the end object; a second call does nothing."""
        self._watching.close(reason)

    def __enter__(self) -> PytreeWatch:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close(reason_of(kind))
