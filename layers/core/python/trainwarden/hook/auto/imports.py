"""Does something when a module has been imported, whoever imports it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from trainwarden.hook.saying import say

Action = Callable[[], object]


def after(actions: Mapping[str, Action]) -> None:
    """Act once each module is there, at once if it is; a second call for one does nothing."""
    waiting = _FINDER.waiting
    for name, action in actions.items():
        if name in _FINDER.known:
            continue
        _FINDER.known.add(name)
        if name in sys.modules:
            _act(action)
        else:
            waiting[name] = action
    if waiting and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _act(action: Action) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - an import of the user's must not fail by us
        say(f"this training is not watched by itself: {type(error).__name__}: {error}")


class _Finder(MetaPathFinder):
    """Finds modules as the others do, and adds what is to be done when they have run."""

    def __init__(self) -> None:
        self.waiting: dict[str, Action] = {}
        self.known: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module that is waited for; None leaves all others to the finders behind."""
        del path, target
        action = self.waiting.pop(name, None)
        if action is None:
            return None
        if not self.waiting:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader = None if spec is None else spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _act(action)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_FINDER = _Finder()
