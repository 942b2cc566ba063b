"""``--rules-folder``: a folder of your own rules, for this process only."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden import rules
from trainwarden.custom import folder as custom

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
    found = custom.load(path)
    for cls in found.values():
        rules.add(cls, folder)
    _loaded.add(path)
    return tuple(found)
