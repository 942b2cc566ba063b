"""The hook of Hugging Face's ``Trainer``: ``TransformersCallback``."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainwarden.hook.torch import Hook
from trainwarden.hook.torch.trainings import Trainings

# What the hook measures itself, under the names that rules know.
_MEASURED = frozenset({"loss", "grad_norm", "learning_rate", "epoch", "eval_loss", "train_loss"})


class TransformersCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Watch a training of ``Trainer``: ``Trainer(…, callbacks=[TransformersCallback()])``.

    It watches the model from the beginning of ``train()`` to its end; steps go on where a
    checkpoint left off. Metrics that are logged are recorded. When somebody asks for the end of the
    run, a checkpoint is saved and the training ends. Several trainings of one callback are several
    runs.

    Args:
        options: Those of ``trainwarden.watch``: ``job``, ``out``, ``save_interval``, ``rules``, …
    """

    def __init__(self, **options: Any) -> None:
        self._trainings = Trainings(options)

    @property
    def hook(self) -> Hook | None:
        """Of the training that runs."""
        return self._trainings.hook

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Begin to watch."""
        del args, control
        made = self._trainings.begin(kwargs["model"], kwargs.get("optimizer"), state.global_step)
        made.add_up()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """End the training after a checkpoint, if somebody asks for that."""
        del args, state, kwargs
        if self._trainings.stopping:
            control.should_save = control.should_training_stop = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the metrics that are logged."""
        del args, state, control, kwargs
        for name, value in (logs or {}).items():
            if self.hook is not None and name not in _MEASURED and isinstance(value, Real):
                self.hook.record(name, float(value))

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Upload what is left."""
        del args, state, control, kwargs
        self._trainings.end()
