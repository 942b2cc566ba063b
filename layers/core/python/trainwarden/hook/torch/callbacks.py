"""What is hung into torch: callables that never raise, never pickle, and can be taken out again."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trainwarden.hook.session import Session

_MARK = "_trainwarden_patch"
_INERT = contextlib.nullcontext().__exit__  # takes anything, does nothing, returns None
_FAKE = getattr(getattr(torch._C, "_TorchDispatchModeKey", None), "FAKE", None)  # noqa: SLF001 - no public name
# Asked at every step: the public ones take three times as long.
_compiling, _tracing = torch.compiler.is_compiling, torch._C._is_tracing  # noqa: SLF001 - see above
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)  # noqa: SLF001 - see above


def no_training() -> bool:
    """Say whether a graph is being made: nothing that runs now has values."""
    if _compiling() or _tracing():
        return True
    if not _modes() or _FAKE is None:
        return False
    return torch._C._get_dispatch_mode(_FAKE) is not None  # noqa: SLF001 - no public name


class Callback:
    """A hook of a module or optimizer that leaves no trace in copies.

    A ``deepcopy`` of a watched model is without it. ``pickle`` replaces it by a method of the
    standard library that does nothing, so a saved model loads where trainwarden is not installed.
    While a graph is traced it does nothing either, so it never breaks one.

    Args:
        session: Guards the call.
        function: What to call.
        answers: Its result is handed on; else it is dropped.
    """

    __torch_unserializable__ = True  # torch warns of other hooks when it pickles a parameter

    def __init__(
        self, session: Session, function: Callable[..., object], *, answers: bool = False
    ) -> None:
        self._session, self._function, self._answers = session, function, answers
        self._handles: list[RemovableHandle] = []

    def hang(self, register: Callable[..., RemovableHandle], **options: Any) -> RemovableHandle:
        """Hang it in: ``hang(module.register_forward_hook)``."""
        handle = register(self, **options)
        self._handles = [one for one in self._handles if self._hangs(one)]
        self._handles.append(handle)
        return handle

    @staticmethod
    def _hangs(handle: RemovableHandle) -> bool:
        hooks = handle.hooks_dict_ref()
        return hooks is not None and handle.id in hooks

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, unless a graph is being made."""
        if no_training():
            return None
        answer = self._session.guarded(self._function, *arguments)
        return answer if self._answers else None

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        places = []
        for handle in self._handles:
            copied = memo.get(id(handle.hooks_dict_ref()))
            if copied is not None:
                places.append((copied, handle.id))
        memo.setdefault(id(memo), []).append(_Sweep(places))
        return _INERT

    def __copy__(self) -> Callable[..., None]:
        return _INERT

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class _Sweep:
    """Takes copied hooks out of a ``deepcopy`` when that is done and forgets what it kept."""

    def __init__(self, places: list[tuple[dict[int, Any], int]]) -> None:
        self._places = places

    def __del__(self) -> None:
        for hooks, position in self._places:
            hooks.pop(position, None)


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
        self._spare: Any = None  # the last wrapper that was taken out
        self._on = False

    @property
    def installed(self) -> bool:
        """True between ``install`` and ``remove``."""
        return self._on

    def install(self) -> None:
        """Put the wrapper in place; nothing happens if it is."""
        top = getattr(self._owner, self._name)
        if self._on and top is self._wrapper:
            return
        self._on = True
        _INSTALLED.add(self)
        if self._wrapper is not None and self._wrapper in _chain(top):
            return
        if self._spare is not None and self._original is top:
            # Who took hold of the wrapper before it was taken out calls it still.
            self._wrapper, self._spare = self._spare, None
            setattr(self._owner, self._name, self._wrapper)
            return
        original = self._original = top

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._on or self._wrapper is not wrapper or no_training():
                return original(*args, **kwargs)
            return self._around(original, *args, **kwargs)

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(wrapper, name, getattr(original, name, None))
        setattr(wrapper, _MARK, self)
        self._wrapper = wrapper
        setattr(self._owner, self._name, wrapper)

    def remove(self) -> None:
        """Put the original back, and with it what lay below ours and is off too."""
        self._on = False
        _INSTALLED.discard(self)
        top = getattr(self._owner, self._name)
        while (ours := _patch_of(top)) is not None and not ours._on and ours._wrapper is top:  # noqa: SLF001 - of this class
            top, ours._spare, ours._wrapper = ours._original, top, None  # noqa: SLF001 - of this class
            setattr(self._owner, self._name, top)


_INSTALLED = weakref.WeakSet[Patch]()


def _patch_of(function: Any) -> Patch | None:
    found = getattr(function, _MARK, None)
    return found if isinstance(found, Patch) else None


def unpatched(function: Any) -> Any:
    """Return what a function was before ours were put in its place."""
    while (patch := _patch_of(function)) is not None:
        function = patch._original  # noqa: SLF001 - of this module
    return function


def _chain(function: Any) -> Iterator[Any]:
    """Yield a function and those it wraps, as far as they can be seen."""
    while function is not None:
        yield function
        patch = _patch_of(function)
        function = patch._original if patch else getattr(function, "__wrapped__", None)  # noqa: SLF001 - of this module


class Scripting:
    """Takes everything of ours out while ``torch.jit`` makes a script: it compiles hooks too."""

    def __init__(self) -> None:
        places = (("_script", "_script_impl"), ("_recursive", "create_script_module"))
        found = ((getattr(torch.jit, module, None), name) for module, name in places)
        self._patches = [
            Patch(owner, name, self._around) for owner, name in found if hasattr(owner, name)
        ]

    def install(self) -> None:
        """Begin to look out."""
        for patch in self._patches:
            patch.install()

    def remove(self) -> None:
        """Cease to look out."""
        for patch in self._patches:
            patch.remove()

    @staticmethod
    def _around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _hidden(args[0] if args else kwargs.get("obj")):
            return original(*args, **kwargs)


@contextlib.contextmanager
def _hidden(scripted: Any) -> Iterator[None]:
    """Take our hooks out of the modules below ``scripted``, and all patches; back at the end."""
    patches = list(_INSTALLED)
    kept: list[tuple[dict[int, Any], dict[int, Any]]] = []
    modules = scripted.modules() if isinstance(scripted, nn.Module) else ()
    for module in modules:
        for hooks in (module._forward_hooks, module._forward_pre_hooks):  # noqa: SLF001 - as torch.jit does
            ours = {key: hook for key, hook in hooks.items() if _is_ours(hook)}
            if ours:
                kept.append((hooks, dict(hooks)))
                for key in ours:
                    del hooks[key]
    for patch in patches:
        patch.remove()
    try:
        yield
    finally:
        for patch in patches:
            patch.install()
        for hooks, before in kept:
            hooks.clear()
            hooks.update(before)


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, Callback) or isinstance(
        getattr(hook, "__self__", None), contextlib.nullcontext
    )
