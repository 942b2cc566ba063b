"""``--rules-folder``: a folder of your own rules, for this process only.

A module holds classes of our API, or of SageMaker Debugger's shape (``trainwarden.smdebug``).
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from trainwarden import rules
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.model import Rule

_FIRST_CODE = 901  # 9xx of each family belongs to users
_loaded: set[Path] = set()


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--rules-folder``."""
    parser.add_argument("--rules-folder", metavar="DIR", help="your own rules: a folder of modules")


def load(folder: str | None) -> tuple[str, ...]:
    """Add the rules of a folder to this process's registry and return their names.

    Raises:
        NotFoundError: no such folder, or no rule in it.
        BadInputError: a module that cannot be imported, a name or code that is taken.
    """
    if folder is None:
        return ()
    path = Path(folder).resolve()
    if path in _loaded:
        return ()
    found = [(cls, file) for file in sorted(path.glob("*.py")) for cls in _classes(file)]
    if not found:
        raise NotFoundError(
            f"no rule lies in {folder}: `trainwarden rules new NAME --folder {folder}` writes one"
        )
    for position, (cls, file) in enumerate(found):
        rules.add(_as_ours(cls, f"CUS{_FIRST_CODE + position}"), str(file))
    _loaded.add(path)
    return tuple(cls.__name__ for cls, _ in found)


def _classes(file: Path) -> Iterator[Any]:
    from trainwarden.smdebug.adapter import classes

    module = _imported(file)
    yield from classes(module)
    for value in vars(module).values():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if own and issubclass(value, Rule):
            yield value


def _as_ours(cls: Any, code: str) -> type[Rule[Any]]:
    if issubclass(cls, Rule):
        ours: type[Rule[Any]] = cls
        return ours
    from trainwarden.smdebug.adapter import as_rule

    made = as_rule(cls, code=code)
    made.meta = replace(made.meta, default=True)  # who brings it wants it to run
    return made


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"trainwarden_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise BadInputError("a module of Python", str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's module may raise anything while it is imported
        del sys.modules[spec.name]
        said = f"{file}: {type(error).__name__}: {error}"
        raise BadInputError("a module of rules that can be imported", said) from error
    return module
