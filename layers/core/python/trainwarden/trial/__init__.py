"""Recorded runs, to be asked for: our own, and traces that SageMaker Debugger wrote.

trial = open_trial("runs", "resnet50-2026-11-30")
trial.tensor("loss").value(100)
trial.tensor("gradient/fc1.weight").reduction_value(100, "mean", abs=True)
"""

from __future__ import annotations

from trainwarden.trial.exceptions import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
    TrialError,
)
from trainwarden.trial.opening import open_trial
from trainwarden.trial.source import CollectionInfo, Moment, Source
from trainwarden.trial.tensor import Tensor
from trainwarden.trial.trial import StepState, Trial

__all__ = [
    "CollectionInfo",
    "InvalidWorker",
    "MissingCollectionFiles",
    "Moment",
    "NoMoreData",
    "ShapeUnavailableForStep",
    "Source",
    "StepNotYetAvailable",
    "StepState",
    "StepUnavailable",
    "Tensor",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "Trial",
    "TrialError",
    "open_trial",
]
