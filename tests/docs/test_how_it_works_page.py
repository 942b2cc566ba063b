"""The page on how it works runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.pipeline.test_check import record_run
from trainwarden.config.documents import MAX_RULES_BYTES
from trainwarden.engine import MAX_EVIDENCE_BYTES, MAX_STATE_BYTES
from trainwarden.pipeline import Settings
from trainwarden.pipeline.inbox import KNOWN_TENSORS
from trainwarden.pipeline.streams import KEPT_REASONS
from trainwarden.wire.manifest import MAX_MANIFEST_BYTES, MAX_TENSORS, MAX_WRITERS

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


def test_the_limits_on_the_page_are_the_codes() -> None:
    known = Settings()
    assert f"| workers that write | {MAX_WRITERS}," in PAGE
    assert f"| {MAX_TENSORS:,}, in a manifest of {MAX_MANIFEST_BYTES >> 20} MiB |" in PAGE
    assert f"found or not | {known.max_requests:,}, and {known.budget_s:g} s |" in PAGE
    assert f"share of a sweep | {known.share_s:g} s," in PAGE
    assert f"script passes | {MAX_RULES_BYTES >> 10} KiB" in PAGE
    assert f"a rule's state | {MAX_STATE_BYTES >> 10} KiB" in PAGE
    assert f"evidence | {MAX_EVIDENCE_BYTES >> 10} KiB" in PAGE
    assert f"dropped something | {KEPT_REASONS} |" in PAGE
    assert f"keeps {KNOWN_TENSORS:,} tensors'" in PAGE
