"""GradScaler: true losses, true gradients, and the steps it skips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.parameters import UNSCALED, Scaling
from trainwarden.hook.torch.weak import weakly
from trainwarden.stats.catalog import Flag

# Before torch 2.3 there is only the one of CUDA.
GradScaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler


@dataclass(frozen=True)
class Scaled:
    """What GradScaler did at a step; ``found_inf`` is None if it is not in use."""

    scaling: Scaling = UNSCALED
    loss_scale: float | None = None
    found_inf: bool | None = None


class ScalerWatch:
    """Follows every GradScaler of the process through two methods of its class.

    ``GradScaler.step`` does not call ``Optimizer.step`` when it found infinite gradients, so no
    optimizer hook runs; it is seen here that the optimizer was not stepped.

    Args:
        session: Guards what is ours.
        scaled: Told (loss, scaled loss) of each call of ``scale``.
        steps_of: Returns how often an optimizer was stepped so far; None if it is not watched.
        skipped: Called when a watched optimizer's step was skipped.
    """

    def __init__(
        self,
        session: Session,
        *,
        scaled: Callable[[Any, Any], None],
        steps_of: Callable[[Any], int | None],
        skipped: Callable[[Any], None],
    ) -> None:
        self._session = session
        # Torch's class lives on when the watched modules do not.
        self._scaled = scaled
        self._steps_of, self._skipped = weakly(steps_of), weakly(skipped)
        self._scaler: Any = None
        self._skipping = False
        self._patches = (
            Patch(GradScaler, "scale", self._around_scale),
            Patch(GradScaler, "step", self._around_step),
        )

    def install(self) -> None:
        """Begin to follow."""
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        """Stop to follow."""
        for patch in self._patches:
            patch.remove()

    def state(self, optimizer: torch.optim.Optimizer) -> Scaled:
        """Return what was done to the gradients of ``optimizer``, which is being stepped."""
        scaler = self._scaler
        if scaler is None or not scaler.is_enabled():
            return Scaled()
        # Optimizers with their own kernel for it are stepped always and get both as attributes;
        # their gradients are not divided yet.
        left, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        found_inf = self._skipping or (found is not None and float(found) > 0)
        return Scaled(
            Scaling(
                scale=1.0 if left is None else float(left),
                flags=Flag.SCALED | (Flag.SKIPPED if found_inf else 0),
            ),
            loss_scale=float(scaler.get_scale()),
            found_inf=found_inf,
        )

    def _around_scale(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self._session.guarded(self._scaled, args[-1] if args else kwargs.get("outputs"), result)
        return result

    def _around_step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
        before = self._session.guarded(self._steps_of, optimizer)
        self._scaler = args[0]
        try:
            result = original(*args, **kwargs)
            if before is not None and self._steps_of(optimizer) == before:
                self._skipping = True
                self._session.guarded(self._skipped, optimizer)
        finally:
            self._scaler, self._skipping = None, False
        return result
