"""The hook of Lightning: ``LightningCallback``."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from trainwarden.hook.torch import Hook
from trainwarden.hook.torch.trainings import Trainings


class LightningCallback(Callback):  # type: ignore[misc,unused-ignore]
    """Watch a training of Lightning: ``Trainer(callbacks=[LightningCallback()])``.

    It watches from the first training step to the end of ``fit``; steps go on where a checkpoint
    left off. Metrics that are logged are recorded. When somebody asks for the end of the run, the
    trainer stops as for early stopping.

    Args:
        options: Those of ``trainwarden.watch``: ``job``, ``out``, ``save_interval``, ``rules``, …
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._trainings = Trainings(options)

    @property
    def hook(self) -> Hook | None:
        """Of the training that runs."""
        return self._trainings.hook

    def state_dict(self) -> dict[str, Any]:
        """Count steps in checkpoints: the trainer counts those of every optimizer."""
        steps = self._trainings.steps
        return {} if steps is None else {"step": steps}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Forget what was counted: this may be a checkpoint of a trainer without this callback."""
        del trainer, pl_module, checkpoint
        self._trainings.step = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting after a checkpoint."""
        self._trainings.step = state_dict.get("step")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch, after the sanity check."""
        known = self._trainings.step
        start = known if known is not None and trainer.global_step else trainer.global_step
        self._trainings.begin(_called(pl_module), trainer.optimizers, start)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """End the training, if somebody asks for that."""
        del pl_module, args, kwargs
        if self._trainings.stopping:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the metrics that were logged."""
        del pl_module
        if self.hook is not None and not trainer.sanity_checking:
            for name, value in trainer.callback_metrics.items():
                self.hook.record(name, value)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Upload what is left."""
        del trainer, pl_module
        self._trainings.end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Upload what is left of a training that failed, or was interrupted."""
        del trainer, pl_module
        self._trainings.end("failed" if isinstance(exception, Exception) else "stopped")


def _called(module: LightningModule) -> nn.Module | dict[str, nn.Module]:
    """Return what a training step calls: the module's parts, unless it has weights of its own.

    A ``LightningModule`` itself is called by few; its parts keep their names.
    """
    parts = {
        name: part for name, part in module.named_children() if any(True for _ in part.parameters())
    }
    own = any(True for _ in module.parameters(recurse=False))
    return module if own or not parts else parts
