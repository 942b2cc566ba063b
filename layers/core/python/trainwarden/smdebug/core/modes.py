"""``smdebug.core.modes``: the names are the same, the values are words instead of numbers."""

from __future__ import annotations

from trainwarden.model import Mode

__all__ = ["ModeKeys"]

ModeKeys = Mode
