"""Rules as users wrote them; only ``smdebug`` became ``trainwarden.smdebug``."""

from typing import Any

from trainwarden.smdebug.analysis.utils import parse_list_from_str
from trainwarden.smdebug.exceptions import StepUnavailable
from trainwarden.smdebug.rules import Rule


class CustomGradientRule(Rule):
    def __init__(self, base_trial: Any, threshold: float = 10.0) -> None:
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step: int) -> bool:
        for tname in self.base_trial.tensor_names(collection="gradients"):
            t = self.base_trial.tensor(tname)
            abs_mean = t.reduction_value(step, "mean", abs=True)
            if abs_mean > self.threshold:
                return True
        return False


class GrowingGradient(Rule):
    """Asks for tensors first, and looks back."""

    def __init__(
        self, base_trial: Any, regex: str = "gradient/.*weight", factor: float = 2.0
    ) -> None:
        super().__init__(base_trial, action_str="")
        self.regex = parse_list_from_str(regex)
        self.factor = factor
        self.seen: dict[str, int] = {}

    def set_required_tensors(self, step: int) -> None:
        for pattern in self.regex:
            self.req_tensors.add(pattern, steps=[step], should_match_regex=True)

    def invoke_at_step(self, step: int) -> bool:
        for tensor in self.req_tensors.get():
            before = tensor.prev_steps(step, 2)
            if len(before) < 2:
                continue
            now = tensor.reduction_value(step, "l2")
            if now > self.factor * tensor.reduction_value(before[0], "l2"):
                self.seen[tensor.name] = step
                return True
        return False


class LearningRateRule(Rule):
    def __init__(self, base_trial: Any, limit: float = 0.25, patience: int = 2) -> None:
        super().__init__(base_trial)
        self.limit, self.patience = limit, patience
        self.count = 0

    def invoke_at_step(self, step: int) -> bool:
        if self.base_trial.tensor("lr_0").value(step) > self.limit:
            self.count += 1
        return self.count >= self.patience


class Hoarder(Rule):
    def invoke_at_step(self, step: int) -> bool:
        self.kept = self.base_trial.tensor("loss")
        return step < 0


class FarBack(Rule):
    def invoke_at_step(self, step: int) -> bool:
        try:
            self.base_trial.tensor("loss").value(step - 150)
        except StepUnavailable:
            self.missed = getattr(self, "missed", 0) + 1
        return False


class Comparison(Rule):
    def __init__(self, base_trial: Any, other_trial: Any) -> None:
        super().__init__(base_trial, other_trials=[other_trial])
