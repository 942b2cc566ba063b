"""Every Python example of the page on migrating is executed, and what it says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "migrating-from-sagemaker-debugger.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("source", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_runs_as_it_stands(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert "assert " in source
    exec(compile(source, "example", "exec"), {"__name__": "example"})  # noqa: S102 - our own page


def test_every_link_leads_to_a_page() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)
