"""Runs code written for SageMaker Debugger: replace ``smdebug`` by ``trainwarden.smdebug``.

Reading of recorded runs and rules of one's own are here. Capturing is ``trainwarden.watch``.
"""

from __future__ import annotations

from trainwarden.smdebug.core.modes import ModeKeys as modes  # noqa: N813 - smdebug's own name

__all__ = ["modes"]
