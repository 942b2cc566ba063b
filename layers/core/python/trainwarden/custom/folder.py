"""A folder of modules that hold rules, imported as the package ``custom_rules``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Rule

PACKAGE = "custom_rules"  # modules beside each other import so: from custom_rules._shared import x


def load(folder: Path) -> dict[str, type[Rule[Any]]]:
    """Import every module of a folder and return its rules by name.

    A module whose name begins with an underscore or ``test_`` holds none.

    Raises:
        NotFoundError: no such folder, or no rule in it.
        BadInputError: a module that cannot be imported, or a name that occurs twice.
    """
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {folder}")
    _make_package(folder)
    found: dict[str, type[Rule[Any]]] = {}
    for cls in (cls for file in modules(folder) for cls in _classes(file)):
        name = str(getattr(getattr(cls, "meta", None), "name", cls.__name__))
        if name in found:
            raise BadInputError("a name of its own for each rule", f"{name} twice in {folder}")
        found[name] = cls
    if not found:
        raise NotFoundError(f"no module in {folder} holds a class derived from Rule")
    return found


def modules(folder: Path) -> list[Path]:
    """List the modules that may hold rules, in order."""
    return [f for f in sorted(folder.glob("*.py")) if not f.name.startswith(("_", "test_"))]


def _make_package(folder: Path) -> None:
    for name in [n for n in sys.modules if n == PACKAGE or n.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    package = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    sys.modules[PACKAGE] = package
    importlib.invalidate_caches()


def _classes(file: Path) -> Iterator[type[Rule[Any]]]:
    try:
        module = importlib.import_module(f"{PACKAGE}.{file.stem}")
    except Exception as error:
        found = f"{file.name}: {type(error).__name__}: {error}"
        raise BadInputError("a module that can be imported", found) from error
    for value in vars(module).values():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if own and issubclass(value, Rule):
            yield value
