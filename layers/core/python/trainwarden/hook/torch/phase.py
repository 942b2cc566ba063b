"""Where the loop is: which step or evaluation pass goes on, and where its losses go."""

from __future__ import annotations

import torch

from trainwarden.hook.session import Session
from trainwarden.hook.torch.drafts import Drafts
from trainwarden.hook.torch.modules import Modules
from trainwarden.hook.torch.tally import Tally
from trainwarden.model import Mode


class Phase:
    """Tells training from evaluation, by the mode of the modules and whether gradients are made.

    Args:
        session: Names the first step.
        modules: The watched modules.
        drafts: Of the step and of the evaluation pass.

    Attributes:
        step: Number of the step being made, or to come.
        evaluating: An evaluation pass goes on.
        drafts: As given.
    """

    def __init__(self, session: Session, modules: Modules, drafts: Drafts) -> None:
        self._modules, self.drafts = modules, drafts
        self.step, self.evaluating = session.options.schedule.start, False
        self._with_gradients = self._trains_in_eval = False

    @property
    def mode(self) -> Mode:
        """Of what goes on."""
        return Mode.EVAL if self.evaluating else Mode.TRAIN

    @property
    def trains(self) -> bool:
        """True if losses may be of training: the modules are in training mode, or never are."""
        return self._trains_in_eval or self._modules.training

    def rests(self, *, training: bool) -> bool:
        """Say if a batch changes nothing: training goes on, and nothing is to be saved of it."""
        return training and not self.evaluating and self.drafts.idle and torch.is_grad_enabled()

    def begin(self, *, training: bool) -> None:
        """A batch begins, of training or of evaluation."""
        self.drafts.submit_pending()
        gradients = torch.is_grad_enabled()
        self.evaluating = not (training or (self._trains_in_eval and gradients))
        if self.evaluating:
            self._with_gradients = gradients
            self.drafts.evaluate(self.step)
        else:
            self.drafts.finish_evaluation()

    def adopt(self) -> None:
        """See if the loop trains in eval mode: what seemed an evaluation was a step's batch."""
        if self.evaluating and self.drafts.evaluation and self._with_gradients:
            self._trains_in_eval, self.evaluating = True, False
            self.drafts.adopt()

    def tally(self) -> Tally | None:
        """Return where losses go now; None if nothing is saved."""
        if not self._trains_in_eval and self._modules.training is self.evaluating:
            self.begin(training=self.evaluating)  # the model was not called through its root
        if self.evaluating:
            return self.drafts.evaluation[1] if self.drafts.evaluation else None
        if self.drafts.draft is None or not torch.is_grad_enabled():
            return None  # without gradients it is no training: a check, or an RL rollout
        return self.drafts.tally
