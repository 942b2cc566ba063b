"""A training of Keras on any backend: what its variables show between two batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from trainwarden.hook.arrays import ArraySteps, Leaf, leaf
from trainwarden.hook.draft import Draft
from trainwarden.hook.keras.names import kind_of, measured, named, owners, scales_loss
from trainwarden.hook.session import Session
from trainwarden.hook.watching import Target, Watching
from trainwarden.model import Collection

if TYPE_CHECKING:
    from trainwarden.hook.keras.gradients import Gradients


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
        gradients: Compute them once more beside saved steps, on JAX.
    """

    def __init__(self, session: Session, model: Any, inputs: Any, *, gradients: bool) -> None:
        super().__init__(session)
        self._model, self._inputs = model, inputs
        self._gradients = _gradients(session, model) if gradients else None
        self._draft: Draft | None = None
        self._sum = _Sum()

    def before(self) -> None:
        """Look at the weights before the update."""
        self._draft = self.begin(self._model.steps_per_execution)
        if self._draft is None:
            return
        self._sync()
        self._sum = self._losses()
        names, kinds = self._trained()
        values = [variable.value for variable in self._model.trainable_variables]
        optimizer = self._model.optimizer
        rate = None if optimizer is None else float(optimizer.learning_rate)
        self.fill(self._draft, _leaves(names, values), {}, rate=rate, kinds=kinds)
        if self._inputs is not None:
            self.inputs(self._draft, np.asarray(self._inputs))
        if self._gradients is not None:
            self._gradients.arm()

    def after(self, steps: int, logs: Mapping[str, Any]) -> None:
        """Look at the loss and the metrics of a batch, or of several."""
        draft, self._draft = self._draft, None
        if draft is not None:
            self._sync()
            before, now = self._sum, self._losses()
            loss = now.since(before) if now.samples else logs.get("loss")
            names, kinds = self._trained()
            taken = [] if self._gradients is None else self._gradients.taken()
            self.fill(draft, {}, _leaves(names, taken), loss=loss, kinds=kinds)
            draft.facts(Collection.METRICS, measured(logs))
        self.end(draft, steps)

    def validated(self, logs: Mapping[str, Any]) -> None:
        """Save a validation."""
        if "loss" in logs:
            self.evaluate(logs["loss"], measured(logs))

    def _trained(self) -> tuple[list[str], dict[str, str]]:
        """Return the names of the trainable variables, and name → kind of layer."""
        names = {id(variable): name for name, variable in named(self._model).items()}
        layers = owners(self._model)
        kinds = {name: kind_of(layers[key]) for key, name in names.items()}
        return [names[id(variable)] for variable in self._model.trainable_variables], kinds

    def _sync(self) -> None:
        """JAX has the values elsewhere during an epoch."""
        getattr(self._model, "jax_state_sync", lambda: None)()

    def _losses(self) -> _Sum:
        for metric in self._model.metrics:
            if metric.name == "loss" and hasattr(metric, "total"):
                return _Sum(float(metric.total), float(metric.count))
        return _Sum()  # of a model that reports it in its own way


def _leaves(names: Sequence[str], values: Sequence[Any]) -> dict[str, Leaf]:
    made = {
        name: leaf(name, keras.ops.convert_to_numpy(value))
        for name, value in zip(names, values, strict=False)  # of gradients there may be none
    }
    return {name: one for name, one in made.items() if one is not None}


def _gradients(session: Session, model: Any) -> Gradients | None:
    own = type(model).train_step is keras.Model.train_step
    if keras.backend.backend() == "jax" and own and not scales_loss(model):
        from trainwarden.hook.keras.gradients import Gradients

        return Gradients(session, model)
    session.say(
        "gradients are not captured: for them a model on JAX must have Keras' train_step, and an "
        "optimizer that does not scale the loss"
    )
    return None


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
        gradients = bool(asked.pop("gradients", False))
        self._watching = Watching(
            asked,
            target,
            ("keras", f"{keras.__version__} on {keras.backend.backend()}"),
            partial(Steps, model=model, inputs=inputs, gradients=gradients),
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
