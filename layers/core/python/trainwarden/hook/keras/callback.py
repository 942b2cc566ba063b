"""The hook of Keras 3: ``KerasCallback``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import keras

from trainwarden.hook.keras.names import scales_loss
from trainwarden.hook.saying import say

Logs = Mapping[str, Any] | None


class Run(Protocol):
    """A training that is watched, in the way of a backend."""

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""

    @property
    def stopping(self) -> bool:
        """True once somebody asks for the end."""

    def before(self) -> None:
        """A batch begins, or several that Keras makes in one go."""

    def after(self, steps: int, logs: Logs) -> None:
        """So many batches end."""

    def validated(self, logs: Logs) -> None:
        """A validation ends."""

    def end(self, reason: str) -> None:
        """Upload what is left; without a reason it finished, or was asked to stop."""


class KerasCallback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """Watch a training of Keras: ``model.fit(…, callbacks=[KerasCallback()])``.

    It watches from the first epoch to the end of ``fit``; steps go on where the optimizer left
    off. Each ``fit`` is a run. When somebody asks for the end of the run, the training stops as for
    early stopping.

    Args:
        options: Those of ``trainwarden.watch``: ``job``, ``out``, ``save_interval``, ``rules``, …
        inputs: The table that is trained on, samples first: on JAX and TensorFlow statistics of up
            to 2,000 of its rows are saved. On PyTorch the inputs of each saved step are.
        gradients: On JAX compute them once more beside each saved step. On PyTorch they are seen.
    """

    def __init__(self, *, inputs: Any = None, gradients: bool = False, **options: Any) -> None:
        super().__init__()
        self._options = options
        self._elsewhere = {"inputs": inputs, "gradients": gradients}  # than on PyTorch
        self._run: Run | None = None
        self._begun, self._ill = 0, False

    @property
    def job(self) -> str:
        """Name of the job that runs; empty between two."""
        return "" if self._run is None else self._run.job

    def close(self, reason: str = "failed") -> None:
        """End a run whose ``fit`` ended in an error; the next ``fit`` would, too.

        Args:
            reason: ``failed`` or ``stopped``.
        """
        run, self._run = self._run, None
        if run is not None:
            run.end(reason)

    def on_train_begin(self, logs: Logs = None) -> None:
        """End what did not come to its end."""
        del logs
        self.close("failed")
        self._ill = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begin to watch, with the first epoch."""
        del logs
        if self._run is not None or self._ill:
            return
        try:
            self._run = _run(self.model, self._start(epoch), self._options, self._elsewhere)
        except Exception as error:  # whatever it is, it must not end the training
            self._ill = True
            if self._options.get("strict"):
                raise
            say(f"training is not watched: {type(error).__name__}: {error}")

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Look at what there is before the update."""
        del logs
        self._begun = batch
        if self._run is not None:
            self._run.before()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Look at what came of it; end the training, if somebody asks for that."""
        if self._run is not None:
            last = (self.params.get("steps") or batch + 1) - 1  # Keras may name one behind it
            self._run.after(min(batch, last) - self._begun + 1, logs)
            if self._run.stopping:
                self._model.stop_training = True  # ``model`` would fetch its state first, on JAX

    def on_test_end(self, logs: Logs = None) -> None:
        """Record a validation."""
        if self._run is not None:
            self._run.validated(logs)

    def on_train_end(self, logs: Logs = None) -> None:
        """Upload what is left."""
        del logs
        self.close("")

    def _start(self, epoch: int) -> int:
        """Return the number of the first step: of the optimizer, or of an epoch to go on with."""
        optimizer = self.model.optimizer
        made = 0 if optimizer is None else int(optimizer.iterations.value)
        return made or epoch * (self.params.get("steps") or 0)


def _run(model: Any, start: int, options: Mapping[str, Any], elsewhere: Mapping[str, Any]) -> Run:
    """Watch with the hook of PyTorch where it sees the layers and the true gradients."""
    on_torch = keras.backend.backend() == "torch"
    if on_torch and not model.jit_compile and not scales_loss(model):
        from trainwarden.hook.keras.watched import Watched

        return Watched(model, start, options)
    from trainwarden.hook.keras.steps import Looked

    return Looked(model, start, {**options, **elsewhere})
