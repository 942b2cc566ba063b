"""A rule of SageMaker Debugger's shape; its code is as smdebug's users write it."""

from __future__ import annotations

from trainwarden.smdebug.rules.rule import Rule
from trainwarden.trial import Trial


class LossStaysAbove(Rule):
    """Fires once the loss was above a limit at so many saved steps."""

    def __init__(self, base_trial: Trial, limit: float = 1e9, patience: int = 3) -> None:
        super().__init__(base_trial)
        self.limit = limit
        self.patience = patience
        self.count = 0

    def invoke_at_step(self, step: int) -> bool:
        """Count."""
        [name] = self.base_trial.tensor_names(collection="losses")
        if self.base_trial.tensor(name).value(step) > self.limit:
            self.count += 1
        return self.count >= self.patience
