"""``watch`` for PyTorch."""

from __future__ import annotations

from trainwarden.hook.torch.hook import Hook, watch

__all__ = ["Hook", "watch"]
