"""A training of Keras on any backend: what its variables show between two batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from trainwarden.hook.arrays import ArraySteps, leaf
from trainwarden.hook.draft import Draft
from trainwarden.hook.keras.names import measured, named
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Target, Watching
from trainwarden.model import Collection


class _Sum(NamedTuple):
    """What Keras adds up of an epoch's losses, and of how many samples."""

    total: float = 0.0
    samples: float = 0.0

    def since(self, before: _Sum) -> float:
        """Return the mean loss since then: Keras reports that of the epoch."""
        if self.samples <= before.samples or not math.isfinite(before.total):
            return self.total / self.samples
        return (self.total - before.total) / (self.samples - before.samples)


class Steps(ArraySteps):
    """Follows the batches of ``fit``.

    Args:
        session: Where drafts go.
        model: Of Keras.
        inputs: What it is given, samples first; None if that is unknown.
    """

    def __init__(self, session: Session, model: Any, inputs: Any) -> None:
        super().__init__(session)
        self._model, self._inputs = model, inputs
        self._draft: Draft | None = None
        self._sum = _Sum()

    def before(self) -> None:
        """Look at the weights before the update."""
        self._draft = self.begin(self._model.steps_per_execution)
        if self._draft is None:
            return
        self._sync()
        self._sum = self._losses()
        trained = {id(variable) for variable in self._model.trainable_variables}
        found = {
            name: made
            for name, variable in named(self._model).items()
            if id(variable) in trained
            and (made := leaf(name, keras.ops.convert_to_numpy(variable.value))) is not None
        }
        optimizer = self._model.optimizer
        rate = None if optimizer is None else float(optimizer.learning_rate)
        self.fill(self._draft, found, {}, rate=rate)
        if self._inputs is not None:
            self.inputs(self._draft, np.asarray(self._inputs))

    def after(self, steps: int, logs: Mapping[str, Any]) -> None:
        """Look at the loss and the metrics of a batch, or of several."""
        draft, self._draft = self._draft, None
        if draft is not None:
            self._sync()
            before, now = self._sum, self._losses()
            loss = now.since(before) if now.samples else logs.get("loss")
            self.fill(draft, {}, {}, loss=loss)
            draft.facts(Collection.METRICS, measured(logs))
        self.end(draft, steps)

    def validated(self, logs: Mapping[str, Any]) -> None:
        """Save a validation."""
        if "loss" in logs:
            self.evaluate(logs["loss"], measured(logs))

    def _sync(self) -> None:
        """JAX has the values elsewhere during an epoch."""
        getattr(self._model, "jax_state_sync", lambda: None)()

    def _losses(self) -> _Sum:
        for metric in self._model.metrics:
            if metric.name == "loss" and hasattr(metric, "total"):
                return _Sum(float(metric.total), float(metric.count))
        return _Sum()  # of a model that reports it in its own way


class Looked:
    """One training.

    Args:
        model: Of Keras.
        start_step: Number of its first step.
        options: Those of the callback.
    """

    def __init__(self, model: Any, start_step: int, options: Mapping[str, Any]) -> None:
        asked = {"start_step": start_step, **options}
        names = ("job", "out", "_store", "_limits")
        target = Target(*(asked.pop(name, None) for name in names))
        on_stop, inputs = asked.pop("on_stop", None), asked.pop("inputs", None)
        self._watching = Watching(
            asked,
            target,
            ("keras", f"{keras.__version__} on {keras.backend.backend()}"),
            partial(Steps, model=model, inputs=inputs),
            ends=True,
        )
        if self._watching.session is not None:
            self._watching.session.stopping.on_stop = on_stop

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._watching.job

    @property
    def stopping(self) -> bool:
        """True once somebody asks for the end."""
        return self._watching.stopping

    def before(self) -> None:
        """A batch begins, or several."""
        self._watching.call(Steps.before)

    def after(self, steps: int, logs: Mapping[str, Any] | None) -> None:
        """They end."""
        self._watching.call(Steps.after, steps, logs or {})
        if self.stopping and self._watching.session is not None:
            self._watching.session.stopping.act(self._watching.close)

    def validated(self, logs: Mapping[str, Any] | None) -> None:
        """A validation ends."""
        self._watching.call(Steps.validated, logs or {})

    def end(self, reason: str) -> None:
        """Upload what is left."""
        self._watching.close(reason or ("stopped" if self.stopping else "finished"))
