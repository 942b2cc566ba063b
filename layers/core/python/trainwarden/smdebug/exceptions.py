"""``smdebug.exceptions``."""

from __future__ import annotations

from trainwarden.errors import BadInputError, TrainwardenError
from trainwarden.trial.exceptions import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)

__all__ = [
    "InsufficientInformationForRuleInvocation",
    "InvalidWorker",
    "MissingCollectionFiles",
    "NoMoreData",
    "RuleEvaluationConditionMet",
    "SMDebugError",
    "SMDebugValueError",
    "ShapeUnavailableForStep",
    "StepNotYetAvailable",
    "StepUnavailable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
]

SMDebugError = TrainwardenError
SMDebugValueError = BadInputError


class RuleEvaluationConditionMet(TrainwardenError):  # noqa: N818 - names are SageMaker Debugger's
    """A rule has found what it looks for.

    Attributes:
        rule_name: Name of its class.
        step: Global step.
    """

    def __init__(self, rule_name: str, step: int, *, end_of_rule: bool = False) -> None:
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule
        super().__init__(f"the condition of {rule_name} was met at step {step}")


class InsufficientInformationForRuleInvocation(TrainwardenError):  # noqa: N818 - same
    """A rule cannot judge a step with what was saved."""

    def __init__(self, rule_name: str, message: str = "") -> None:
        self.rule_name = rule_name
        super().__init__(f"{rule_name} lacks something: {message}")
