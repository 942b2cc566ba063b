"""Steps that are saved because of what happens in them: a loss that is not finite, or a spike."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.optim import Optimizer

from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.drafts import Drafts
from trainwarden.hook.torch.losses import LOSS
from trainwarden.hook.torch.origin import any_nonfinite, first_operation, order_facts
from trainwarden.hook.torch.parameters import Parameters
from trainwarden.hook.torch.window import LossWatch, readable
from trainwarden.hook.window import Window
from trainwarden.model import Collection


class Events:
    """Follows the losses of every step, opens drafts out of turn, and tells what led there.

    Args:
        session: Says what is captured.
        drafts: One may be opened in the middle of a step.
        parameters: Places operations in the model.
    """

    def __init__(self, session: Session, drafts: Drafts, parameters: Parameters) -> None:
        self._session, self._drafts, self._parameters = session, drafts, parameters
        self.window = Window()
        self.watch = LossWatch(self.window, self._alarm)
        self._step, self._operation, self._was_bad = 0, "", False
        chosen = session.options.collections
        self._tells_window = Collection.WINDOW in chosen
        self._tells_history = Collection.HISTORY in chosen

    def saw(self, loss: torch.Tensor, step: int, *, averaged: bool) -> None:
        """A loss that is about to be trained on.

        Args:
            loss: With its graph, before ``backward()``.
            step: Is being made.
            averaged: Several of them in a step are averaged, not added up.
        """
        self._step, self.watch.averaging = step, averaged
        self.watch.saw(loss)

    def check(self, loss: torch.Tensor, step: int) -> None:
        """``backward()`` is called on something made of the loss: only NaN and infinity count."""
        if loss.is_cpu and readable(loss) and not math.isfinite(value := loss.item()):
            self._step = step
            unsaved = self._drafts.draft is None
            self._alarm(loss, value)
            if unsaved and self._drafts.draft is not None:  # the loss itself was seen before
                self._drafts.tally.add(LOSS, loss, 1)

    def _alarm(self, loss: torch.Tensor | None, value: float, *, now: bool = False) -> None:
        """Save the step that is being made, or if it is too late for that the next one."""
        if not self._tells_history or not self.window.event(self._step, value):
            return
        now = now or loss is not None
        self.window.follow(self._step if now else self._step + 1)
        if now and self._drafts.draft is not None:
            self._drafts.draft.exact, self._drafts.draft.resting = True, None
        elif now:
            self._drafts.open(self._step, whole=True)
            if loss is None:
                self._drafts.tally.losses |= self.watch.known(LOSS)
        if loss is not None and not math.isfinite(value):
            self._operation = first_operation(loss, self._parameters.places())

    def clipped(self, norm: Any, limit: float, step: int, *, scaling: bool) -> None:
        """Gradients were clipped.

        Args:
            norm: Before; a tensor or a number.
            limit: Of the norm.
            step: Is being made.
            scaling: By a GradScaler: infinite gradients are normal.
        """
        if isinstance(norm, torch.Tensor | int | float):
            self.watch.clipped(norm, limit)
            on_host = not isinstance(norm, torch.Tensor) or norm.is_cpu
            if on_host and not scaling and not math.isfinite(norm):
                self._step = step
                self._alarm(None, math.nan, now=True)
            draft = self._drafts.draft
            if draft is not None and Collection.OPTIMIZER in self._session.options.collections:
                draft.scalar(Collection.OPTIMIZER, "grad_norm", float(norm))
                draft.scalar(Collection.OPTIMIZER, "clip_limit", limit)

    def close(self, step: int, optimizer: Optimizer | None) -> None:
        """A step was made; its draft gets what is known of the steps before it."""
        self._step = step
        rate: Any = optimizer.param_groups[0].get("lr") if optimizer is not None else None
        self.watch.close(step, rate)
        draft = self._drafts.draft
        if draft is None:
            return
        draft.settle()
        self.watch.settle()
        facts = self.window.facts()
        if self._tells_window:
            draft.facts(Collection.WINDOW, facts)
        if self._tells_history:
            self._tell_history(draft)

    def _tell_history(self, draft: Draft) -> None:
        loss = self.window.last_loss
        bad = loss is not None and not math.isfinite(loss)
        skipped = draft.scalars.get(Collection.OPTIMIZER.value, {}).get("found_inf", 0.0) > 0
        found = self.window.history()
        bad = (bad or any_nonfinite(draft)) and not skipped
        if bad and not self._was_bad:
            found |= order_facts(draft, self._session.tensors, self._operation, loss=loss)
        self._operation, self._was_bad = "", bad
        if found:
            draft.facts(Collection.HISTORY, found)
