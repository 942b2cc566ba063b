"""``smdebug.trials.utils``."""

from __future__ import annotations

from trainwarden.smdebug.trials import create_trial

__all__ = ["create_trial"]
