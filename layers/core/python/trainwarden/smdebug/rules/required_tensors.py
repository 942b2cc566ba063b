"""``smdebug.rules.required_tensors``: which tensors a rule wants to be there at a step."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden.trial.exceptions import TensorUnavailable
from trainwarden.trial.tensor import Tensor
from trainwarden.trial.trial import Trial


class RequiredTensors:
    """The tensors that a rule has asked for.

    Args:
        base_trial: Taken where no other trial is given.
        other_trials: Further trials of the rule.
    """

    def __init__(self, base_trial: Trial, other_trials: Iterable[Trial] = ()) -> None:
        self.base_trial = base_trial
        self._wanted: list[tuple[Trial, str, tuple[int, ...]]] = []
        self._trials = (base_trial, *other_trials)

    def add(
        self,
        name: str,
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,  # noqa: FBT001, FBT002 - as smdebug has it
    ) -> None:
        """Ask for a tensor, or all that a regular expression matches, at these steps."""
        chosen = trial or self.base_trial
        names = chosen.tensor_names(regex=name) if should_match_regex else [name]
        wanted = tuple(steps)
        self._wanted += [(chosen, one, wanted) for one in names]

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """Return the names asked for."""
        chosen = trial or self.base_trial
        return list(dict.fromkeys(name for of, name, _ in self._wanted if of is chosen))

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int]:
        """Return the steps at which a tensor was asked for."""
        chosen = trial or self.base_trial
        found = {
            s for of, one, steps in self._wanted if of is chosen and one == name for s in steps
        }
        return sorted(found)

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """Return the tensors asked for."""
        chosen = trial or self.base_trial
        return [chosen.tensor(name) for name in self.get_names(chosen)]

    def get_trials(self) -> list[Trial]:
        """Return the trials asked."""
        return list(self._trials)

    def clear(self) -> None:
        """Ask for nothing."""
        self._wanted.clear()

    def fetch(self) -> None:
        """See that all of it is there.

        Raises:
            TensorUnavailable: a tensor was never saved.
            StepUnavailable: a step was not saved.
            TensorUnavailableForStep: a step was saved without the tensor.
        """
        for trial, name, steps in self._wanted:
            if not trial.has_tensor(name):
                raise TensorUnavailable(name)
            for step in steps:
                trial.tensor(name).workers(step)
