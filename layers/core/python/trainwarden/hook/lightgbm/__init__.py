"""The LightGBM hook: a callback that captures what a boosted model shows of itself."""

from __future__ import annotations

from trainwarden.hook.lightgbm.callback import LightGBMCallback

__all__ = ["LightGBMCallback"]
