"""Trainwarden watches training jobs, says early what went wrong and why, and stops the spend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden.hook import Hook as Hook
    from trainwarden.hook import XGBoostCallback as XGBoostCallback
    from trainwarden.hook import watch as watch

__version__ = "0.1.0"
__all__ = ["Hook", "XGBoostCallback", "__version__", "watch"]


def __getattr__(name: str) -> Any:
    # Lazy, so that Lambda and the command line do not pay for the hook's imports.
    if name in {"Hook", "XGBoostCallback", "watch"}:
        from trainwarden import hook

        return getattr(hook, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
