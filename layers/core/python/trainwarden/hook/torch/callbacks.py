"""What is hung into torch: callables that never raise, never pickle, and can be taken out again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from trainwarden.hook.session import Session

_INERT = contextlib.nullcontext().__exit__  # takes anything, does nothing, returns None


class Callback:
    """A hook of a module or optimizer that leaves no trace in copies.

    ``deepcopy`` and ``pickle`` of a watched model replace it by a method of the standard library
    that does nothing, so a saved model loads where trainwarden is not installed. While a graph is
    traced it does nothing either, so it never breaks one.

    Args:
        session: Guards the call.
        function: What to call; its result is dropped.
    """

    def __init__(self, session: Session, function: Callable[..., object]) -> None:
        self._session, self._function = session, function

    def __call__(self, *arguments: Any) -> None:
        """Call the function, unless a graph is being traced."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
            return
        self._session.guarded(self._function, *arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _INERT

    def __copy__(self) -> Callable[..., None]:
        return _INERT

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class Patch:
    """Puts a wrapper in place of ``owner.name`` between ``install`` and ``remove``.

    If somebody else wrapped ours meanwhile it stays in their chain, and only passes calls on.

    Args:
        owner: Module or class.
        name: Name of a function in it.
        around: Called as ``around(original, *args, **kwargs)`` while installed.
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        self._owner, self._name, self._around = owner, name, around
        self._original: Any = None
        self._wrapper: Any = None
        self._on = False

    def install(self) -> None:
        """Put the wrapper in place; nothing happens if it is."""
        if self._on:
            return
        self._on = True
        if self._wrapper is not None and getattr(self._owner, self._name) is self._wrapper:
            return
        original = self._original = getattr(self._owner, self._name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._on or torch.compiler.is_compiling():
                return original(*args, **kwargs)
            return self._around(original, *args, **kwargs)

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(wrapper, name, getattr(original, name, None))
        self._wrapper = wrapper
        setattr(self._owner, self._name, wrapper)

    def remove(self) -> None:
        """Put the original back."""
        self._on = False
        if self._wrapper is not None and getattr(self._owner, self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)
            self._wrapper = None
