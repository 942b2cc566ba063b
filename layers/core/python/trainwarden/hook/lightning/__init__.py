"""Lightning: a callback."""

from __future__ import annotations

from trainwarden.hook.lightning.callback import LightningCallback

__all__ = ["LightningCallback"]
