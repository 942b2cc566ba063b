"""Hugging Face ``Trainer``: a callback."""

from __future__ import annotations

from trainwarden.hook.transformers.callback import TransformersCallback

__all__ = ["TransformersCallback"]
