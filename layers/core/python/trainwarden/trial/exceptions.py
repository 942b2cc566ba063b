"""What a trial raises when it cannot give what was asked for; names as in SageMaker Debugger.

TrialError
├── StepUnavailable            the step was not saved, or will never come
│   └── NoMoreData             the run has ended, nothing more will come
├── StepNotYetAvailable        the run goes on: the step may still come
├── TensorUnavailable          no tensor of this name so far
├── TensorUnavailableForStep   the tensor was not saved at this step, or not as asked for
│   └── ShapeUnavailableForStep
├── InvalidWorker              no such worker
└── MissingCollectionFiles     a trace without its collections file
"""

from __future__ import annotations

from trainwarden.errors import TrainwardenError
from trainwarden.model import Mode


class TrialError(TrainwardenError):
    """What was asked of a trial is not there."""


class StepUnavailable(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """The step was not saved.

    Attributes:
        step: The step asked for, in the numbering of ``mode``.
        mode: The mode asked for.
    """

    def __init__(self, step: int, mode: Mode = Mode.GLOBAL, why: str = "it was not saved") -> None:
        self.step, self.mode = step, mode
        super().__init__(f"step {step} of mode {mode} is not available: {why}")


class NoMoreData(StepUnavailable):
    """The run has ended before the step."""

    def __init__(self, step: int, mode: Mode = Mode.GLOBAL, last: int = -1) -> None:
        super().__init__(step, mode, f"the run has ended, its last step is {last}")


class StepNotYetAvailable(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """The step may still come."""

    def __init__(self, step: int, mode: Mode = Mode.GLOBAL) -> None:
        self.step, self.mode = step, mode
        super().__init__(f"step {step} of mode {mode} is not there yet")


class TensorUnavailable(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """No tensor of this name was saved so far."""

    def __init__(self, name: str, hint: str = "") -> None:
        self.tname = name
        super().__init__(f"no tensor {name!r} was saved{f'; {hint}' if hint else ''}")


class TensorUnavailableForStep(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """The tensor was not saved at this step, or not in the form asked for."""

    def __init__(self, name: str, step: int, mode: Mode = Mode.GLOBAL, why: str = "") -> None:
        self.tname, self.step, self.mode = name, step, mode
        reason = f": {why}" if why else ""
        super().__init__(f"tensor {name!r} is not available at step {step} of mode {mode}{reason}")


class ShapeUnavailableForStep(TensorUnavailableForStep):
    """Neither the tensor nor its shape was saved at this step."""


class InvalidWorker(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """No worker of this name wrote anything."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        super().__init__(f"no worker {worker!r} wrote anything")


class MissingCollectionFiles(TrialError):  # noqa: N818 - names are SageMaker Debugger's
    """There is no collections file."""
