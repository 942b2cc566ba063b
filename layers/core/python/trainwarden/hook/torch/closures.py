"""Closures: an optimizer that is given one makes the forward and backward pass while it steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def followed_by(call: tuple[Any, ...], then: Callable[[], object]) -> Any:
    """Return the arguments of ``step`` with ``then`` called after its closure; None without one.

    Args:
        call: (arguments, keywords) as a hook of the optimizer gets them; empty if nothing was
            called.
        then: Called after each call of the closure.
    """
    if len(call) != 2:  # noqa: PLR2004 - arguments and keywords
        return None
    arguments, keywords = call
    closure = keywords.get("closure")
    position = next((i for i, one in enumerate(arguments) if i and callable(one)), 0)
    closure = arguments[position] if position else closure
    if closure is None:
        return None

    def followed(*args: Any, **kwargs: Any) -> Any:
        result = closure(*args, **kwargs)
        then()
        return result

    if position:
        return (*arguments[:position], followed, *arguments[position + 1 :]), keywords
    return arguments, {**keywords, "closure": followed}
