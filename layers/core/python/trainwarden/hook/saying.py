"""What the hook says to a person; nothing heavy is imported for it."""

from __future__ import annotations

import logging

logger = logging.getLogger("trainwarden")


def say(message: str) -> None:
    """Warn the user. Not through ``warnings``: with ``-W error`` those end a training."""
    logger.warning("trainwarden: %s", message)
