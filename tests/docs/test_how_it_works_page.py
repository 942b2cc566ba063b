"""The page on how it works runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.pipeline.test_check import record_run
from trainwarden.pipeline import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "how-it-works.md").read_text("utf-8")


def test_the_example_judges_a_recorded_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_run(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})  # noqa: S102 - our own page
    assert "ExplodingTensor IssuesFound the loss loss is nan" in capsys.readouterr().out


def test_the_times_on_the_page_are_the_defaults() -> None:
    known = Settings()
    assert f"gap deadline ({known.gap_deadline_s:g} s)" in PAGE
    assert f"after a grace of {known.closing_grace_s:g} s" in PAGE
    assert f"after {known.training_info_deadline_s:g} s the job is judged" in PAGE
    assert f"while training runs after {known.no_data_deadline_s:g} s" in PAGE
    assert f"after {known.max_objects} objects or {known.budget_s:g} s" in PAGE
    assert known.abandoned_after_s == 6 * 3600
