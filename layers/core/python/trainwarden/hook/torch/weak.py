"""References from what is torch's own, and lives as long as the process, to one watched run."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def weakly(function: Callable[..., T]) -> Callable[..., T | None]:
    """Return a method that does not keep its object alive, and does nothing without it.

    Anything else than a method is returned as it is.
    """
    if not hasattr(function, "__self__"):
        return function
    method = weakref.WeakMethod(function)

    def call(*args: Any, **kwargs: Any) -> T | None:
        found = method()
        return None if found is None else found(*args, **kwargs)

    return call
