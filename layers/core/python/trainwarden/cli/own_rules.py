"""``--rules-folder``: a folder of your own rules, for this process only."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden.custom.local import LocalCustomRules

LIMIT_S = 20.0  # for one rule and an object's steps: a busy machine is no broken rule
_loaded: dict[Path, LocalCustomRules] = {}


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--rules-folder``."""
    parser.add_argument("--rules-folder", metavar="DIR", help="your own rules: a folder of modules")


def load(folder: str | None) -> LocalCustomRules | None:
    """Make a folder's rules known and return where they run: here, bounded as in a deployment.

    Raises:
        NotFoundError: no such folder, or no rule in it.
        BadInputError: a module that cannot be imported, a name or code that is taken.
    """
    if folder is None:
        return None
    path = Path(folder).resolve()
    if path not in _loaded:
        _loaded[path] = LocalCustomRules.of_folder(path, LIMIT_S)
    return _loaded[path]
