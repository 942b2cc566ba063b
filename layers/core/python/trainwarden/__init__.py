"""Trainwarden watches training jobs, says early what went wrong and why, and stops the spend."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden.hook import CollectionConfig as CollectionConfig
    from trainwarden.hook import Hook as Hook
    from trainwarden.hook import KerasCallback as KerasCallback
    from trainwarden.hook import LightGBMCallback as LightGBMCallback
    from trainwarden.hook import LightningCallback as LightningCallback
    from trainwarden.hook import PartialFit as PartialFit
    from trainwarden.hook import PytreeWatch as PytreeWatch
    from trainwarden.hook import RawConfig as RawConfig
    from trainwarden.hook import ReductionConfig as ReductionConfig
    from trainwarden.hook import SaveConfig as SaveConfig
    from trainwarden.hook import SaveConfigMode as SaveConfigMode
    from trainwarden.hook import StopTraining as StopTraining
    from trainwarden.hook import TransformersCallback as TransformersCallback
    from trainwarden.hook import XGBoostCallback as XGBoostCallback
    from trainwarden.hook import watch as watch

__version__ = "0.1.0"
__all__ = [
    "CollectionConfig",
    "Hook",
    "KerasCallback",
    "LightGBMCallback",
    "LightningCallback",
    "PartialFit",
    "PytreeWatch",
    "RawConfig",
    "ReductionConfig",
    "RuleCollection",
    "SaveConfig",
    "SaveConfigMode",
    "StopTraining",
    "TransformersCallback",
    "XGBoostCallback",
    "__version__",
    "watch",
]
_LAZY = {
    **dict.fromkeys(
        (
            "CollectionConfig",
            "Hook",
            "KerasCallback",
            "LightGBMCallback",
            "LightningCallback",
            "PartialFit",
            "PytreeWatch",
            "RawConfig",
            "ReductionConfig",
            "SaveConfig",
            "SaveConfigMode",
            "StopTraining",
            "TransformersCallback",
            "XGBoostCallback",
            "watch",
        ),
        "hook",
    ),
    "RuleCollection": "rules",
    **dict.fromkeys(
        (
            "ActionList",
            "CaptureMoreAction",
            "EmailAction",
            "NotifyAction",
            "SMSAction",
            "StopTrainingAction",
        ),
        "actions",
    ),
}


def __getattr__(name: str) -> Any:
    # Lazy, so that nobody pays for imports that somebody else needs.
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in {"actions", "rules"}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
