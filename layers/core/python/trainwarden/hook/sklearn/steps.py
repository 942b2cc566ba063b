"""What is captured of a step: the model before it, the batch, and validation after it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trainwarden.hook.boosted.predictions import class_tables, counts, spread_rows
from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.sklearn.layers import Layers
from trainwarden.hook.sklearn.network import Network, network, rate, strides, updates
from trainwarden.hook.sklearn.objectives import judge
from trainwarden.hook.watching import Immediate
from trainwarden.model import Collection, FloatArray, Mode
from trainwarden.stats.features import Features, duplicated, output_facts

_COMPARED = 256  # rows of a batch that are looked at for copies
_OUTPUTS = 64


class _Step(NamedTuple):
    """A saved step that is on its way."""

    draft: Draft
    x: Any
    y: Any
    before: Network | None


class Steps(Immediate):
    """Follows the calls of ``partial_fit``.

    Args:
        session: Where drafts go.
        model: The estimator.
        validation: ``(X, y)`` or None.
    """

    def __init__(self, session: Session, model: Any, validation: tuple[Any, Any] | None) -> None:
        self._session, self._model = session, model
        self._layers = Layers(session)
        self._validation = None if validation is None else _sample(*validation)
        self._features: Features | None = None
        self._step, self._passes = session.options.schedule.start, 0
        self._now: _Step | None = None
        self._updates, self._calls = 0.0, 0  # since the last saved step

    def before(self, x: Any, y: Any) -> None:
        """Look at the model and the batch if the step is saved."""
        self._now = None
        if self._session.due(self._step):
            draft = self._session.draft(self._step, Mode.TRAIN, self._step)
            found = network(self._model)
            if found is not None:
                self._layers.weights(draft, found, self._updates / max(self._calls, 1))
            self._updates, self._calls = 0.0, 0
            self._now = _Step(draft, *_sample(x, y), found)
            if isinstance(self._now.x, np.ndarray):
                self._add_inputs(draft, self._now.x)

        rows = x.shape[0] if hasattr(x, "shape") else len(x)
        self._updates += updates(self._model, rows)
        self._calls += 1

    def after(self) -> None:
        """Judge the batch by the model as it was, and validation by the model as it is."""
        self._step, step, self._now = self._step + 1, self._now, None
        if step is None:
            return
        before, after = step.before, network(self._model)
        if before is None and after is not None and len(after.weights) == 1:
            before = after.zeros()  # as linear models begin
            self._layers.weights(step.draft, before, 1.0)
        if math.isfinite(known := rate(self._model)):
            step.draft.scalar(Collection.OPTIMIZER, "lr_0", known)
        if step.y is not None:
            self._judge(step.draft, before, step.x, step.y)
            if before is None and hasattr(self._model, "loss_"):  # a network at its first step
                step.draft.scalar(Collection.LOSSES, "loss", float(self._model.loss_))
        self._session.submit(step.draft)
        if self._validation is not None and after is not None:
            draft = self._session.draft(step.draft.step, Mode.EVAL, self._passes)
            self._passes += 1
            self._judge(draft, after, *self._validation)
            self._session.submit(draft)

    def _add_inputs(self, draft: Draft, x: FloatArray) -> None:
        self._layers.batch(draft, Collection.INPUTS, "input/0", x)
        if self._features is None or self._features.total != x.shape[1]:
            self._features = Features(x.shape[1])
        rows = np.ascontiguousarray(x[:, self._features.kept], dtype=np.float64)
        facts = self._features.add(rows, samples=len(x), size=len(x))
        if len(x) > 1:
            facts["duplicated_samples"] = duplicated(x[:_COMPARED])
        draft.facts(Collection.BATCH, facts, "input/0.")

    def _judge(self, draft: Draft, layers: Network | None, x: Any, y: npt.NDArray[Any]) -> None:
        training = draft.mode is Mode.TRAIN
        classes = getattr(self._model, "classes_", None)
        wanted = _targets(y, classes)
        single = classes is not None and y.ndim == 1  # not several labels of one row
        if single:
            draft.labels["label/0"] = counts(wanted.argmax(axis=1))
        if layers is None:
            return
        passed = layers.forward(x)
        scores = passed[-1]
        targets = wanted[:, 1:] if scores.shape[1] < wanted.shape[1] else wanted
        judged = judge(layers.objective, scores, targets)
        if judged is not None and (judged[0] > 0 or np.any(scores)):  # a perceptron begins with 0
            early = strides(self._model)  # nothing can be said by such losses
            draft.scalar(Collection.METRICS if early else Collection.LOSSES, "loss", judged[0])
        if single:
            self._add_classes(draft, layers, scores, wanted)
        if training:
            self._layers.activations(draft, layers, passed[1:-1])
            self._layers.batch(draft, Collection.OUTPUTS, "output/0", scores)
            if len(scores) > 1:
                draft.facts(Collection.BATCH, output_facts(scores[:_OUTPUTS]), "output/0.")
            if judged is not None:
                self._layers.gradients(draft, layers, layers.backward(passed, judged[1]))
            if classes is None:
                self._layers.batch(draft, Collection.LABELS, "label/0", targets)

    def _add_classes(
        self, draft: Draft, layers: Network, scores: FloatArray, wanted: FloatArray
    ) -> None:
        labels, count = wanted.argmax(axis=1), wanted.shape[1]
        given = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        draft.labels.update(class_tables(labels, given, count))
        name = layers.objective.name
        draft.scalar(Collection.OBJECTIVE, f"{name}.classes", float(count))
        draft.scalar(Collection.OBJECTIVE, f"{name}.accuracy", float((labels == given).mean()))


def _sample(x: Any, y: Any) -> tuple[Any, Any]:
    """Return up to so many evenly spread rows; of what is no matrix as an array."""
    rows = x if hasattr(x, "tocsr") else np.asarray(x)
    rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
    chosen = spread_rows(rows.shape[0])
    if y is None:
        return rows[chosen], None
    labels = np.asarray(y)[chosen]
    return rows[chosen], labels[:, 0] if labels.shape[1:] == (1,) else labels


def _targets(y: npt.NDArray[Any], classes: npt.NDArray[Any] | None) -> FloatArray:
    """Return (N, K): of classes 1 for the right one, else the numbers themselves."""
    if classes is None or y.ndim > 1:
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    found: FloatArray = (y[:, None] == np.asarray(classes)[None]).astype(np.float64)
    return found
