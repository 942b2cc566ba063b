"""Follows ``clip_grad_norm_``: how long gradients were, and where they are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import utils

from trainwarden.hook.session import Session
from trainwarden.hook.torch.callbacks import Patch
from trainwarden.hook.torch.weak import weakly

_EUCLIDEAN = 2.0
# Since torch 2.6 all go through these, also those imported by name before the watch began.
_NORM, _CUT = "_get_total_norm", "_clip_grads_with_norm_"


class ClipWatch:
    """Watches the calls for parameters of the watched modules.

    Args:
        session: Guards what is ours.
        ours: Says if a parameter is one of the watched modules.
        clipped: Told the norm before and the limit; its object is not kept alive.
    """

    def __init__(
        self,
        session: Session,
        ours: Callable[[torch.Tensor], bool],
        clipped: Callable[[Any, float], object],
    ) -> None:
        self._session, self._ours, self._clipped = session, weakly(ours), weakly(clipped)
        self._kind = _EUCLIDEAN  # of the norm that was computed last
        inner = getattr(utils, "clip_grad", None)
        if hasattr(inner, _NORM) and hasattr(inner, _CUT):
            self._patches = [
                Patch(inner, _NORM, self._around_norm),
                Patch(inner, _CUT, self._around_cut),
            ]
        else:
            self._patches = [
                Patch(place, "clip_grad_norm_", self._around)
                for place in (utils, inner)
                if hasattr(place, "clip_grad_norm_")
            ]

    def install(self) -> None:
        """Begin to watch."""
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        """Cease to watch."""
        for patch in self._patches:
            patch.remove()

    def _around(
        self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)  # a generator is read but once
        result = original(parameters, *args, **kwargs)
        limit = args[0] if args else kwargs.get("max_norm")
        kind = args[1] if len(args) > 1 else kwargs.get("norm_type", _EUCLIDEAN)
        self._session.guarded(self._seen, parameters, limit, kind, result)
        return result

    def _around_norm(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._kind = args[1] if len(args) > 1 else kwargs.get("norm_type", _EUCLIDEAN)
        return original(*args, **kwargs)

    def _around_cut(
        self, original: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)
        given = dict(zip(("max_norm", "total_norm"), args, strict=False)) | kwargs
        limit, norm = given.get("max_norm"), given.get("total_norm")
        self._session.guarded(self._seen, parameters, limit, self._kind, norm)
        return original(parameters, *args, **kwargs)

    def _seen(self, parameters: Any, limit: Any, kind: Any, norm: Any) -> None:
        first = parameters[0] if isinstance(parameters, list) and parameters else parameters
        if not isinstance(first, torch.Tensor) or not self._ours(first):
            return
        if not isinstance(limit, int | float) or not 0 <= limit < math.inf or kind != _EUCLIDEAN:
            return
        if not hasattr(norm, "to_local"):  # DTensor: reading it would wait for other ranks
            self._clipped(norm, float(limit))
