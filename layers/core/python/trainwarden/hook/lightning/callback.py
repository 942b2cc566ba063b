"""The hook of Lightning: ``LightningCallback``."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from trainwarden.hook.torch import Hook, watch


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
        self.hook: Hook | None = None
        self._options = options

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch, after the sanity check."""
        self._close("failed")  # a fit before that did not come to its end
        options = {"start_step": trainer.global_step, **self._options}
        self.hook = watch(_called(pl_module), trainer.optimizers, **options)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """End the training, if somebody asks for that."""
        del pl_module, args, kwargs
        if self.hook is not None and self.hook.stop_requested:
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
        stopped = self.hook is not None and self.hook.stop_requested
        self._close("stopped" if stopped else "finished")

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Upload what is left of a training that failed, or was interrupted."""
        del trainer, pl_module
        self._close("failed" if isinstance(exception, Exception) else "stopped")

    def _close(self, reason: str) -> None:
        if self.hook is not None:
            self.hook.close(reason)
        self.hook = None


def _called(module: LightningModule) -> nn.Module | dict[str, nn.Module]:
    """Return what a training step calls: the module's parts, unless it has weights of its own.

    A ``LightningModule`` itself is called by few; its parts keep their names.
    """
    parts = {
        name: part for name, part in module.named_children() if any(True for _ in part.parameters())
    }
    own = any(True for _ in module.parameters(recurse=False))
    return module if own or not parts else parts
