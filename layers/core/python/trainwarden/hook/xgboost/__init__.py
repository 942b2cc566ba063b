"""The XGBoost hook: a callback that captures what a boosted model shows of itself."""

from __future__ import annotations

from trainwarden.hook.xgboost.callback import XGBoostCallback

__all__ = ["XGBoostCallback"]
