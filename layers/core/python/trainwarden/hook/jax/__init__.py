"""The JAX hook: a look at the pytrees of a step."""

from __future__ import annotations

from trainwarden.hook.jax.watch import PytreeWatch

__all__ = ["PytreeWatch"]
