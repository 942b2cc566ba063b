"""``--rules-folder``: a folder of your own rules, for this process only."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from trainwarden import rules
from trainwarden.custom import folder as custom
from trainwarden.custom.local import LocalCustomRules

_loaded: set[Path] = set()
_asked: dict[Path, LocalCustomRules] = {}


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--rules-folder``."""
    parser.add_argument("--rules-folder", metavar="DIR", help="your own rules: a folder of modules")


def load(folder: str | None) -> None:
    """Add the rules of a folder to this process's registry, to be shown.

    Raises:
        NotFoundError: no such folder, or no rule in it.
        BadInputError: a module that cannot be imported, a name or code that is taken.
    """
    path = Path(folder).resolve() if folder is not None else None
    if path is None or path in _loaded:
        return
    with redirect_stdout(sys.stderr):
        found = custom.load(path)
    for cls in found.values():
        rules.add(cls, str(folder))
    _loaded.add(path)


def asked(folder: str | None) -> LocalCustomRules | None:
    """Return where the rules of a folder run: guarded as in a deployment, in this process.

    Raises:
        NotFoundError, BadInputError: as ``load``.
    """
    if folder is None:
        return None
    path = Path(folder).resolve()
    if path not in _asked:
        _asked[path] = LocalCustomRules.of_folder(path)
    return _asked[path]
