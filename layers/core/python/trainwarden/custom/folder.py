"""A folder of modules that hold rules, imported as the package ``custom_rules``.

A module holds classes of our API, or of SageMaker Debugger's shape (``trainwarden.smdebug``).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Rule

PACKAGE = "custom_rules"  # modules beside each other import so: from custom_rules._shared import x
SMDEBUG = "trainwarden.smdebug.rules.rule"  # who derives from its Rule has imported it
FIRST_CODE, LAST_CODE = 901, 999  # 9xx of each family belongs to users


def load(folder: Path) -> dict[str, type[Rule[Any]]]:
    """Import every module of a folder and return its rules by name.

    A module whose name begins with an underscore or ``test_`` holds none. A class of SageMaker
    Debugger's shape becomes a rule with a code ``CUS901``, ``CUS902``, … that no other one has.

    Raises:
        NotFoundError: no such folder, or no rule in it.
        BadInputError: a module that cannot be imported, or a name that occurs twice.
        ConfigError: a class of SageMaker Debugger's shape that cannot run as a rule.
    """
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {folder}")
    _make_package(folder)
    classes = [cls for file in modules(folder) for cls in _classes(file)]
    found: dict[str, type[Rule[Any]]] = {}
    for cls in _as_ours(classes):
        name = str(getattr(getattr(cls, "meta", None), "name", cls.__name__))
        if name in found:
            raise BadInputError("a name of its own for each rule", f"{name} twice in {folder}")
        found[name] = cls
    if not found:
        raise NotFoundError(
            f"no rule lies in {folder}: `trainwarden rules new NAME --folder {folder}` writes one"
        )
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


def _classes(file: Path) -> Iterator[Any]:
    """Yield the classes of either shape that a module defines, in its order."""
    try:
        module = importlib.import_module(f"{PACKAGE}.{file.stem}")
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        found = f"{file.name}: {type(error).__name__}: {error}"
        if isinstance(error, SystemExit):
            found = f"{file.name}, which ends the process"
        remedy = ""
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("smdebug"):
            remedy = "write trainwarden.smdebug for smdebug"
        raise BadInputError("a module of rules that can be imported", found, remedy) from error
    theirs = getattr(sys.modules.get(SMDEBUG), "Rule", Rule)
    for value in vars(module).values():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if own and issubclass(value, (Rule, theirs)):
            yield value


def _as_ours(classes: list[Any]) -> Iterator[type[Rule[Any]]]:
    taken = {str(getattr(getattr(cls, "meta", None), "code", "")) for cls in classes}
    free = (code for n in range(FIRST_CODE, LAST_CODE + 1) if (code := f"CUS{n}") not in taken)
    for cls in classes:
        yield cls if issubclass(cls, Rule) else _adapted(cls, next(free, f"CUS{LAST_CODE}"))


def _adapted(cls: Any, code: str) -> type[Rule[Any]]:
    from trainwarden.smdebug.adapter import as_rule

    made = as_rule(cls, code=code)
    made.meta = replace(made.meta, default=True)  # who brings it wants it to run
    return made
