"""Custom rules in this very process, behind the same port: for tests, and without any cloud."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from trainwarden.custom.answering import answer
from trainwarden.custom.describing import describe, stand_in
from trainwarden.custom.folder import load
from trainwarden.model import Rule
from trainwarden.rules import add


class LocalCustomRules:
    """``CustomRules`` that run here.

    Args:
        rules: By name.
        limit_s: Seconds for one rule and an object's steps; as in the function if None.
    """

    def __init__(self, rules: Mapping[str, type[Rule[Any]]], limit_s: float | None = None) -> None:
        self.rules, self._limit_s = dict(rules), limit_s

    @classmethod
    def of_folder(cls, folder: Path, limit_s: float | None = None) -> LocalCustomRules:
        """Load a folder, and make its rules known to this process's registry.

        Raises:
            NotFoundError: as ``folder.load``.
            BadInputError: the same.
            ConfigError: a name or code that another rule has.
        """
        with redirect_stdout(sys.stderr):
            made = cls(load(folder), limit_s)
        for one in made.rules.values():
            known = stand_in(describe(one))
            known.__module__, known.__doc__ = one.__module__, one.__doc__  # where its runbook is
            add(known, str(folder))
        return made

    def ask(self, question: bytes) -> bytes:
        """Return the answer; what rules print goes to stderr."""
        with redirect_stdout(sys.stderr):
            return answer(question, self.rules, self._limit_s)
