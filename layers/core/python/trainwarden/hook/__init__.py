"""The training side: ``watch`` captures statistics and uploads them in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden.hook.torch import Hook as Hook
    from trainwarden.hook.torch import watch as watch

__all__ = ["Hook", "watch"]


def __getattr__(name: str) -> Any:
    # Lazy, so that a framework is imported only by those who use it.
    if name in __all__:
        from trainwarden.hook import torch

        return getattr(torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
