"""The training side: ``watch`` captures statistics and uploads them in the background."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden.hook.collection_config import CollectionConfig as CollectionConfig
    from trainwarden.hook.collection_config import ReductionConfig as ReductionConfig
    from trainwarden.hook.jax import PytreeWatch as PytreeWatch
    from trainwarden.hook.keras import KerasCallback as KerasCallback
    from trainwarden.hook.lightgbm import LightGBMCallback as LightGBMCallback
    from trainwarden.hook.lightning import LightningCallback as LightningCallback
    from trainwarden.hook.raw_config import RawConfig as RawConfig
    from trainwarden.hook.save_config import SaveConfig as SaveConfig
    from trainwarden.hook.save_config import SaveConfigMode as SaveConfigMode
    from trainwarden.hook.sklearn import PartialFit as PartialFit
    from trainwarden.hook.stopping import StopTraining as StopTraining
    from trainwarden.hook.torch import Hook as Hook
    from trainwarden.hook.torch import watch as watch
    from trainwarden.hook.transformers import TransformersCallback as TransformersCallback
    from trainwarden.hook.xgboost import XGBoostCallback as XGBoostCallback

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
    "SaveConfig",
    "SaveConfigMode",
    "StopTraining",
    "TransformersCallback",
    "XGBoostCallback",
    "watch",
]
_HOMES = {
    "CollectionConfig": "collection_config",
    "Hook": "torch",
    "KerasCallback": "keras",
    "LightGBMCallback": "lightgbm",
    "LightningCallback": "lightning",
    "PartialFit": "sklearn",
    "PytreeWatch": "jax",
    "RawConfig": "raw_config",
    "ReductionConfig": "collection_config",
    "SaveConfig": "save_config",
    "SaveConfigMode": "save_config",
    "StopTraining": "stopping",
    "TransformersCallback": "transformers",
    "XGBoostCallback": "xgboost",
    "watch": "torch",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that a framework is imported only by those who use it.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
