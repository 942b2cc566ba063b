"""The drafts of a run: the step being made, the one just made, the evaluation pass.

A step that was made waits until the next batch before it is submitted, so that what the loop
records after ``optimizer.step()`` still goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trainwarden.errors import BadInputError
from trainwarden.hook.draft import Draft
from trainwarden.hook.session import Session
from trainwarden.hook.torch.batches import add_tensor
from trainwarden.hook.torch.losses import LossReader
from trainwarden.hook.torch.objective import Objectives
from trainwarden.hook.torch.tally import Tally
from trainwarden.model import Collection, Mode


class Drafts:
    """Opens, completes and submits drafts, in the order in which things happened.

    Args:
        session: Where drafts go.
        may_write: Asked before the first one goes.
    """

    def __init__(self, session: Session, may_write: Callable[[], bool] = lambda: True) -> None:
        self._session, self._may_write = session, may_write
        self.losses: LossReader | None = None  # reads the tallies
        self.draft: Draft | None = None  # the training step being made, if it is saved
        self.tally = Tally()
        self.evaluation: tuple[Draft, Tally] | None = None
        self._pending: tuple[Draft, Tally] | None = None
        self._passes, self._passing_over = 0, False
        self._wrote = False
        self._carried: dict[tuple[str, str], Any] = {}

    @property
    def idle(self) -> bool:
        """True if nothing is saved of what goes on, and nothing waits."""
        return self.draft is None and self._pending is None and self.evaluation is None

    def open(self, step: int, *, saved: bool = True, whole: bool = False) -> bool:
        """Begin the draft of ``step`` if it is ``saved`` and may be; True if so.

        Args:
            step: Of the run.
            saved: The schedule wants it, or something happened.
            whole: Measure whole tensors whatever it costs.
        """
        self.draft = None
        if saved and self._session.covers(step):
            self.draft = self._session.draft(step, Mode.TRAIN, step, whole=whole)
            self.tally = Tally()
        return self.draft is not None

    @property
    def made(self) -> bool:
        """True if the step made last is saved: what is recorded now goes with it."""
        return self._pending is not None

    def complete(self) -> None:
        """The step is made."""
        if self.draft is not None:
            self.draft.time = self._session.now()
            self._pending, self.draft = (self.draft, self.tally), None

    def reopen(self) -> None:
        """The step that was made last is not over yet."""
        self.draft = None
        if self._pending is not None:
            (self.draft, self.tally), self._pending = self._pending, None

    def evaluate(self, step: int) -> None:
        """A batch of an evaluation pass begins."""
        options = self._session.options
        if self.evaluation is not None or not options.evaluation:
            return
        self._passing_over = not options.passes.saves(self._passes)
        if not self._passing_over:
            draft = self._session.draft(step, Mode.EVAL, self._passes)
            self.evaluation = (draft, Tally(objectives=Objectives(evaluating=True)))

    def adopt(self) -> None:
        """What seemed the last batch of an evaluation belongs to the training step."""
        if self.evaluation is None:
            return
        _, tally = self.evaluation
        last = tally.split_last()
        if tally.batches <= 0:
            self.evaluation = None
        self.finish_evaluation()
        self.tally = last

    def submit_pending(self) -> None:
        """Submit the step that was made last."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._submit(*pending)

    def finish_evaluation(self) -> None:
        """Submit the evaluation pass if it has losses or records."""
        evaluation, self.evaluation = self.evaluation, None
        if evaluation is None:
            self._passes += self._passing_over
            self._passing_over = False
            return
        draft, tally = evaluation
        draft.time = self._session.now()
        if tally.losses or not draft.empty:
            self._submit(draft, tally)
            self._passes += 1

    def finish(self, step: int) -> None:
        """Submit what is left at the end of the loop."""
        self.submit_pending()
        self.finish_evaluation()
        if self._carried:
            self._submit(self._session.draft(step, Mode.TRAIN, step), Tally())

    def record(self, name: str, value: torch.Tensor, collection: str, mode: Mode) -> None:
        """Add a scalar or tensor to the step that it belongs to; see ``Hook.record``."""
        draft = self._pending[0] if self._pending else self.draft
        if mode is Mode.EVAL and self.evaluation:
            draft = self.evaluation[0]
        if value.numel() != 1:
            if draft is not None:
                self._record_tensor(draft, name, value, collection)
        elif draft is None:
            self._carried[collection, name] = value
        else:
            self._record_number(draft, name, value, collection)

    def _record_number(self, draft: Draft, name: str, value: torch.Tensor, collection: str) -> None:
        try:
            number = float(value)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            problem = f"record({name!r}): {type(error).__name__} when it was read"
            self._session.trouble(BadInputError("a tensor with a value", problem))
        else:
            draft.scalar(collection, name, number)

    def _record_tensor(self, draft: Draft, name: str, value: torch.Tensor, collection: str) -> None:
        custom = Collection.CUSTOM.value if collection == Collection.METRICS else collection
        add_tensor(self._session, draft, custom, name, value)

    def _submit(self, draft: Draft, tally: Tally) -> None:
        if self.losses and Collection.LOSSES in self._session.options.collections:
            for name, value in self.losses.resolve(tally, draft.mode).items():
                draft.scalar(Collection.LOSSES, name, value)
        self._describe(draft, tally)
        if draft.mode is Mode.TRAIN and self._carried:
            carried, self._carried = self._carried, {}
            for (collection, name), value in carried.items():
                if name not in draft.scalars.get(collection, {}):
                    self._record_number(draft, name, value, collection)
        if draft.empty:
            return
        if not self._wrote:
            self._wrote = self._may_write()
        if self._wrote:
            self._session.submit(draft)

    def _describe(self, draft: Draft, tally: Tally) -> None:
        """Add what is known of labels, predictions and loss functions."""
        options = self._session.options
        draft.labels.update({name: counts for name, counts in tally.labels.items() if counts})
        for name, counts in tally.objectives.tables().items():
            if options.wants(Collection.LABELS, name):
                draft.labels[name] = dict(counts)
        if tally.weighted:
            draft.scalar(Collection.LABELS, "weighted", 1.0)
        if Collection.OBJECTIVE in options.collections:
            facts = tally.objectives.facts()
            if facts:
                draft.facts(Collection.OBJECTIVE, facts)
