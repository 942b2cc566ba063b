"""The trainings of a framework's trainer, one hook for each: what callbacks have in common."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from trainwarden.hook.torch.hook import Hook, watch


class Trainings:
    """Begins and ends the hook of each training of a callback.

    The framework ends the loop by its own means when ``stopping``; nothing is raised for that.

    Args:
        options: Those of ``trainwarden.watch``.

    Attributes:
        hook: Of the training that runs; None between two.
        step: Steps made when the last training ended; None if none is known.
        thread: The one that trains.
    """

    _OPEN: ClassVar[weakref.WeakSet[Trainings]] = weakref.WeakSet()

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.hook: Hook | None = None
        self.step: int | None = None
        self._options = dict(options)
        self.thread = 0

    def begin(
        self, model: nn.Module | Mapping[str, nn.Module], optimizer: Any, start_step: int
    ) -> Hook:
        """Watch a training. Those before, of its name, that did not come to their end have failed.

        Args:
            model: Module, or several by name.
            optimizer: One or several, as for ``watch``.
            start_step: Number of the first step, unless the options say it.
        """
        self.end("failed")
        self.thread = threading.get_ident()
        for other in list(self._OPEN):
            if (other.job, other.thread) == (self._options.get("job"), self.thread):
                other.end("failed")
        self.hook = watch(model, optimizer, **{"start_step": start_step, **self._options})
        self.hook.ended_by_caller()
        self._OPEN.add(self)
        return self.hook

    @property
    def job(self) -> str:
        """Name of the job that runs; empty between two."""
        return "" if self.hook is None else self.hook.job

    @property
    def stopping(self) -> bool:
        """True once somebody asks for the end of the training."""
        return self.hook is not None and self.hook.stop_requested

    @property
    def steps(self) -> int | None:
        """Steps made up to now, those before a checkpoint included; None if nobody counts."""
        return self.step if self.hook is None else self.hook.step or None

    def end(self, reason: str = "") -> None:
        """Upload what is left; without a reason the training finished, or was asked to stop."""
        if self.hook is None:
            return
        self.hook.close(reason or ("stopped" if self.stopping else "finished"))
        self.step, self.hook = self.steps, None
        self._OPEN.discard(self)
