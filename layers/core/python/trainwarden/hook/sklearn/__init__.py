"""The scikit-learn hook: a ``partial_fit`` that captures what each step does to the model."""

from __future__ import annotations

from trainwarden.hook.sklearn.watch import PartialFit

__all__ = ["PartialFit"]
