"""Keras 3: a callback."""

from __future__ import annotations

from trainwarden.hook.keras.callback import KerasCallback

__all__ = ["KerasCallback"]
