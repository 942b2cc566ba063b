"""A training of Keras on PyTorch: the hook of PyTorch on the model's layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwarden.hook.keras.modules import Model, Tap
from trainwarden.hook.keras.names import measured, optimizers
from trainwarden.hook.torch.trainings import Trainings


class Watched:
    """One training.

    Args:
        model: Of Keras.
        start_step: Number of its first step.
        options: Those of ``trainwarden.watch``.
    """

    def __init__(self, model: Any, start_step: int, options: Mapping[str, Any]) -> None:
        self._trainings, layers = Trainings(options), Model(model)
        self._trainings.begin(layers, None, start_step)
        self._taps = [Tap(optimizer) for optimizer in optimizers(model)]

    @property
    def job(self) -> str:
        """Name of the job; empty if nothing is watched."""
        return self._trainings.job

    @property
    def stopping(self) -> bool:
        """True once somebody asks for the end."""
        return self._trainings.stopping

    def before(self) -> None:
        """A batch begins: the hook sees it by itself."""

    def after(self, steps: int, logs: Mapping[str, Any] | None) -> None:
        """A batch ends."""
        del steps
        if self._trainings.hook is not None and self._trainings.hook.step_saved:
            self._record(measured(logs))

    def validated(self, logs: Mapping[str, Any] | None) -> None:
        """A validation ends."""
        self._record(measured(logs))
        if logs and "loss" in logs and self._trainings.hook is not None:
            self._trainings.hook.record("loss", float(logs["loss"]), "losses")

    def end(self, reason: str) -> None:
        """Upload what is left."""
        self._trainings.end(reason)
        for tap in self._taps:
            tap.leave()

    def _record(self, metrics: Mapping[str, float]) -> None:
        if self._trainings.hook is not None:
            for name, value in metrics.items():
                self._trainings.hook.record(name, value)
