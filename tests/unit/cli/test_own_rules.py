"""Rules of one's own, of both shapes, over recorded runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwarden import rules
from trainwarden.cli import own_rules
from trainwarden.cli.main import main

OURS = """
from dataclasses import dataclass
from typing import ClassVar
from trainwarden.model import Finding, Need, Rule, RuleMeta, Severity, Tier

@dataclass(frozen=True, kw_only=True)
class LateStep(Rule):
    meta: ClassVar[RuleMeta] = RuleMeta("USR901", "LateStep", Severity.ERROR, Tier.CRITICAL,
                                        (Need("losses", "value"),), ("stop",), "capture losses")
    limit: int = 50

    def start(self):
        return False

    def advance(self, state, obs):
        if state or obs.step < self.limit:
            return state, ()
        return True, [Finding(obs.step, "", obs.step, self.limit, "late", obs.step)]
"""
SMDEBUG = """
from trainwarden.smdebug.rules.rule import Rule

class BigLoss(Rule):
    def __init__(self, base_trial, threshold=1.0):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        return self.base_trial.tensor("loss").value(step) > self.threshold
"""


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rules, "_added", [])
    monkeypatch.setattr(own_rules, "_loaded", set())
    yield
    monkeypatch.undo()
    rules.registry.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "late.py").write_text(OURS)
    (tmp_path / "big.py").write_text(SMDEBUG)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code = main((*argv, "--json"))
    captured = capsys.readouterr()
    return json.loads(captured.out) if captured.out else (code, captured.err)


def test_check_judges_by_them_too(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = run(capsys, "check", str(runs), "--rules-folder", str(folder))
    for job in judged:
        status = {verdict["rule"]: verdict["status"] for verdict in job["verdicts"]}
        assert status["LateStep"] == status["BigLoss"] == "IssuesFound"


def test_explain_shows_their_runbook(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = run(capsys, "explain", "LateStep", "--rules-folder", str(folder))
    assert (told["rule"], told["code"]) == ("LateStep", "USR901")
    for name in ("LateStep", "BigLoss"):
        assert main(("explain", name, "--rules-folder", str(folder))) == 0
        assert name in capsys.readouterr().out


def test_replay_sets_their_parameters(
    runs: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--rules-folder", str(folder), "--rules", "LateStep BigLoss", "--workers", "1")
    found = run(capsys, "replay", str(runs), "--job", "sick", *options,
                "--set", "LateStep.limit=70", "--set", "BigLoss.threshold=1000")  # fmt: skip
    (sick,) = found
    assert [(one["rule"], one["step"]) for one in sick["fired"]] == [("LateStep", 70)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("from smdebug.rules.rule import Rule", "write trainwarden.smdebug for smdebug"),
        ("x = 1", "no rule lies in"),
        (OURS.replace("LateStep", "Overfit"), "a rule name of its own"),
        (OURS.replace("USR901", "LOS002"), "a rule code of its own"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "one.py").write_text(text)
    code, err = run(capsys, "check", str(runs), "--rules-folder", str(tmp_path))
    assert code == 2
    assert said in err
    assert "LateStep" not in rules.registry()
