"""``smdebug.rules.rule``: what a rule written for SageMaker Debugger derives from."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trainwarden.model import Json
from trainwarden.smdebug.analysis.utils import no_refresh
from trainwarden.smdebug.exceptions import RuleEvaluationConditionMet
from trainwarden.smdebug.rules.action import Actions
from trainwarden.smdebug.rules.required_tensors import RequiredTensors
from trainwarden.trial.trial import Trial


class Rule:
    """A rule that looks at one step at a time through its trial.

    Args:
        base_trial: The job it judges.
        action_str: What to do, as JSON; see ``rules.action``.
        other_trials: Further jobs it compares with.

    Attributes:
        base_trial: The job it judges.
        other_trials: Further jobs.
        req_tensors: The tensors it asked for in ``set_required_tensors``.
        report: What it wants to tell.
        logger: Where it may log.
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: str | None = "",
        other_trials: Iterable[Trial] | None = None,
    ) -> None:
        self.base_trial = base_trial
        self.other_trials = list(other_trials or ())
        self.trials = [base_trial, *self.other_trials]
        self.rule_name = type(self).__name__
        self.logger = logging.getLogger(f"trainwarden.smdebug.{self.rule_name}")
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.report: dict[str, Json] = {"RuleTriggered": 0, "Violations": 0, "Details": {}}
        self.actions = Actions(action_str or "", rule_name=self.rule_name)

    def set_required_tensors(self, step: int) -> None:
        """Ask for tensors through ``self.req_tensors.add``; a rule may leave this out."""

    def invoke_at_step(self, step: int) -> bool:
        """Judge one global step; True means that the rule has found what it looks for."""
        raise NotImplementedError

    def invoke(self, step: int) -> None:
        """Wait for a step, see that what was asked for is there, and judge it.

        Raises:
            RuleEvaluationConditionMet: the rule has found what it looks for.
            StepUnavailable: the step was not saved, or the run ended before.
            TensorUnavailable: a tensor asked for was never saved.
            TensorUnavailableForStep: nor at this step.
        """
        self.base_trial.wait_for_steps([step])
        if self.judge(step):
            self.actions.invoke()
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def judge(self, step: int) -> bool:
        """See that what was asked for is there, and return what the rule says of the step.

        Raises:
            As ``invoke``, but for the condition.
        """
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return bool(self.invoke_at_step(step))
