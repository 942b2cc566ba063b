"""Gradients on JAX: computed once more beside a saved step, which itself stays what it is.

The step is a compiled function; one that also returned its gradients would be another one, and not
compute the same to the bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import keras
import numpy as np

from trainwarden.hook.session import Session


class Gradients:
    """Takes the gradients of a step: of the same weights, batch and random numbers.

    Args:
        session: Guards what is ours.
        model: Of Keras, with Keras' own ``train_step``.
    """

    def __init__(self, session: Session, model: Any) -> None:
        self._session, self._model = session, model
        self._taken: list[Any] = []
        compute = partial(model.compute_loss_and_updates, training=True)
        self._slope = jax.jit(jax.grad(compute, has_aux=True))

    def arm(self) -> None:
        """Have them computed with the step that comes."""
        step = self._model.train_function

        def once(state: Any, batches: Iterator[Any]) -> Any:
            self._model.train_function = step
            batch = next(batches)
            self._session.guarded(self._take, state, batch)
            return step(state, itertools.chain([batch], batches))

        self._taken = []
        self._model.train_function = once

    def taken(self) -> list[Any]:
        """Return them in the order of the trainable variables; none if there was no step."""
        taken, self._taken = self._taken, []
        return taken

    def _take(self, state: Any, batch: Any) -> None:
        trained, rest, optimizer, metrics = state
        given = keras.utils.unpack_x_y_sample_weight(batch)
        found, _ = self._slope(trained, rest, metrics, *given, optimizer_variables=optimizer)
        self._taken = [np.asarray(one) for one in found]  # before the step takes the weights over
