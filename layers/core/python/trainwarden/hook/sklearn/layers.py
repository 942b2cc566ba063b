"""Rows of an estimator's weights, gradients and activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.sklearn.network import Network
from trainwarden.model import Collection, FloatArray, TensorInfo
from trainwarden.stats.reductions import Tensor, channel_columns, channels


class Layers:
    """Gives each layer its rows; keeps the weights of the last saved step to measure updates.

    Args:
        session: Whose layout gets the rows.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._previous: dict[str, FloatArray] = {}

    def weights(self, draft: Draft, layers: Network, updates: float) -> None:
        """Measure weights and biases, and how far they came since the last saved step.

        Args:
            draft: Gets the rows.
            layers: The estimator's.
            updates: In a step, as ``step`` counts them; what is told is the change of one.
        """
        for number, (names, *pair) in enumerate(
            zip(layers.names, layers.weights, layers.biases, strict=True)
        ):
            for name, values in zip(names, pair, strict=True):
                before = self._previous.get(name)
                if before is not None and before.shape != values.shape:
                    before = None
                self._previous[name] = values
                if before is not None and updates > 1:
                    with np.errstate(all="ignore"):
                        before = values - (values - before) / updates
                info = _of_layer(name, number, values)
                told = Tensor(values, "float64", before, per_unit=values.ndim > 1)
                draft.measure([self._session.row(info)], [told])
        draft.settle()

    def gradients(
        self, draft: Draft, layers: Network, found: Sequence[tuple[FloatArray, FloatArray]]
    ) -> None:
        """Measure the gradients of the batch's loss."""
        for number, (names, pair) in enumerate(zip(layers.names, found, strict=True)):
            for name, values in zip(names, pair, strict=True):
                info = _of_layer(name, number, values, gradient=True)
                per_unit = values.ndim > 1
                told = Tensor(values, "float64", per_unit=per_unit)
                draft.measure([self._session.row(info)], [told])

    def activations(self, draft: Draft, layers: Network, found: Sequence[FloatArray]) -> None:
        """Measure what leaves the hidden layers (N, units) each."""
        kind, bounds = layers.hidden.kind, layers.hidden.bounds
        for number, values in enumerate(found):
            name = f"activation/{number}"
            info = TensorInfo(
                name,
                Collection.ACTIVATIONS.value,
                values.shape[1:],
                "float64",
                f"activations.{number}",
                kind,
                2 * number + 1,
            )
            active = channels(values, 1) if kind == "ReLU" else None

            def finish(table: FloatArray, active: object = active) -> None:
                if active is not None:
                    channel_columns(table[0], active)  # type: ignore[arg-type]

            draft.measure(
                [self._session.row(info)], [Tensor(values, "float64", None, bounds)], finish
            )
            if active is not None:
                draft.channels[name] = active

    def batch(self, draft: Draft, collection: Collection, name: str, values: FloatArray) -> None:
        """Measure a batch's inputs, outputs or labels (N, …)."""
        kept = np.ascontiguousarray(values, dtype=np.float64)
        info = TensorInfo(name, collection.value, kept.shape[1:], "float64")
        draft.measure([self._session.row(info)], [Tensor(kept, "float64")])


def _of_layer(name: str, number: int, values: FloatArray, *, gradient: bool = False) -> TensorInfo:
    collection = Collection.WEIGHTS if values.ndim > 1 else Collection.BIASES
    return TensorInfo(
        f"gradient/{name}" if gradient else name,
        (Collection.GRADIENTS if gradient else collection).value,
        values.shape,
        "float64",
        f"layers.{number}",
        "Linear",
        2 * number,
    )
