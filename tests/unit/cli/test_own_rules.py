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
    monkeypatch.setattr(own_rules, "_loaded", {})
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
        ("raise SystemExit(4)", "one.py, which ends the process"),
        ("x = 1", "no rule lies in"),
        (OURS.replace("@dataclass(frozen=True, kw_only=True)", ""), "a frozen dataclass"),
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


@pytest.mark.parametrize(
    ("advance", "said"),
    [
        pytest.param("raise SystemExit(3)", "SystemExit: 3", id="ends-the-process"),
        pytest.param("raise ValueError('one\\n\\ntwo')", "ValueError: one two", id="raises"),
        pytest.param("return object(), ()", "object is not JSON", id="an-object-as-state"),
        pytest.param("return float('nan'), ()", "found Out of range float", id="nan-as-state"),
        pytest.param("return 'x' * 300_000, ()", "262144 bytes", id="a-large-state"),
        pytest.param("return 3", "cannot unpack", id="no-pair"),
        pytest.param("while True: pass", "took longer than", id="for-ever"),
        pytest.param(
            "return True, [Finding(obs.step + 9, '', 1.0, 1.0, 'late', obs.step)]",
            "from 0 to 0",
            id="a-finding-of-later",
        ),
    ],
)
def test_a_rule_is_guarded_as_in_a_deployment(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    advance: str,
    said: str,
) -> None:
    monkeypatch.setattr(own_rules, "LIMIT_S", 0.3)
    head, _, _ = OURS.partition("        if state or")
    (tmp_path / "late.py").write_text(f"{head}        print('hello')\n        {advance}\n")
    judged = run(capsys, "check", str(runs), "--rules-folder", str(tmp_path))
    for job in judged:
        by_rule = {verdict["rule"]: verdict for verdict in job["verdicts"]}
        assert by_rule["LateStep"]["status"] == "Error"
        assert said in by_rule["LateStep"]["note"]
        assert by_rule["LossNotDecreasing"]["status"] != "Error"


def test_a_class_whose_parameter_has_no_default_runs_once_it_is_given(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "big.py").write_text(SMDEBUG.replace("threshold=1.0", "threshold"))
    options = ("--job", "sick", "--rules", "BigLoss", "--rules-folder", str(tmp_path))
    (sick,) = run(capsys, "replay", str(runs), *options, "--set", "BigLoss.threshold=0")
    assert [one["rule"] for one in sick["fired"]] == ["BigLoss"]


def test_a_rule_that_takes_its_process_with_it_is_told(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _, _ = OURS.partition("        if state or")
    (tmp_path / "late.py").write_text(f"{head}        import os\n        os._exit(9)\n")
    code, err = run(capsys, "replay", str(runs), "--rules-folder", str(tmp_path))
    assert code == 2
    assert "does no rule of your own end the process?" in err
