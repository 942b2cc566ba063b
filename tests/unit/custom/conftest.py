from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.custom.rules import RULES
from trainwarden import rules
from trainwarden.custom.describing import describe, stand_in


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry knows the custom rules of the tests, and forgets them afterwards."""
    monkeypatch.setattr(rules, "_added", [])
    for cls in RULES.values():
        rules.add(stand_in(describe(cls)), "tests")
    yield
    monkeypatch.undo()
    rules.registry.cache_clear()
