"""The page of statistics is the catalogue's."""

from __future__ import annotations

from pathlib import Path

from trainwarden.stats.catalog import COLUMNS, Flag
from trainwarden.stats.derived import STATISTICS
from trainwarden.stats.page import statistics_page

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == statistics_page(), (
        "run python -m trainwarden.stats.page > docs/statistics.md"
    )


def test_the_page_names_every_statistic_and_flag() -> None:
    page = statistics_page()
    names = {spec.name for spec in COLUMNS} | set(STATISTICS)
    names |= {name for name, bit in vars(Flag).items() if isinstance(bit, int)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
