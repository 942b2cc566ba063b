"""``smdebug.rules.rule_invoker``: runs one rule over a run, step by step."""

from __future__ import annotations

import logging

from trainwarden.smdebug.exceptions import RuleEvaluationConditionMet
from trainwarden.smdebug.rules.rule import Rule
from trainwarden.trial.exceptions import (
    NoMoreData,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)

logger = logging.getLogger(__name__)


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,  # noqa: FBT001, FBT002 - as smdebug has it
) -> list[int]:
    """Ask a rule about every step from ``start_step`` to before ``end_step``, or the run's end.

    Args:
        rule_obj: The rule.
        start_step: First global step.
        end_step: Where to end; None means with the run.
        raise_eval_cond: End at the first step at which the rule fires, with its exception.

    Returns:
        The steps at which it fired (smdebug returns nothing).

    Raises:
        RuleEvaluationConditionMet: it fired, and ``raise_eval_cond`` asks for the exception.
    """
    fired, step = list[int](), start_step
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except NoMoreData:
            break
        except (StepUnavailable, TensorUnavailable, TensorUnavailableForStep) as error:
            logger.debug("%s passed over step %d: %s", rule_obj.rule_name, step, error)
        except RuleEvaluationConditionMet:
            if raise_eval_cond:
                raise
            fired.append(step)
        step += 1
    return fired
