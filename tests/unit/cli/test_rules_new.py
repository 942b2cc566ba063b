"""``trainwarden rules new``: what it writes works as it stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden.cli.main import main
from trainwarden.cli.scaffold import scaffold, stem

ROOT = Path(__file__).parents[3]
# What a project decides for itself, or what a rule yet to be written has.
STRICT = (
    "--isolated", "--target-version=py310", "--line-length=88", "--select=ALL",
    "--ignore=COM812,D100,D103,D203,D213,S101,PLR2004,INP001,TC,TD,FIX,CPY",
)  # fmt: skip


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_the_tests_it_writes_pass_as_they_are(here: Path, mode: str) -> None:
    assert main(["rules", "new", "HighLoss"]) == 0
    assert main(["rules", "new", "NLPGradientNoise2"]) == 0
    command = ("pytest", "-q", "-p", "no:cacheprovider", f"--import-mode={mode}", "rules")
    assert "36 passed" in run(here, *command)


def test_a_change_that_breaks_the_rule_fails_them(here: Path) -> None:
    assert main(["rules", "new", "HighLoss"]) == 0
    rule = here / "rules/high_loss.py"
    kept = "streaks, found = dict(state), []"
    assert kept in rule.read_text()
    rule.write_text(rule.read_text().replace(kept, "streaks, found = {}, []"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "rules"], cwd=here, capture_output=True, check=False
    )
    assert done.returncode == 1


def test_linter_formatter_and_type_checker_have_nothing_to_say(here: Path) -> None:
    assert main(["rules", "new", "HighLoss"]) == 0
    run(here, "ruff", "check", *STRICT, "--config=lint.pydocstyle.convention='google'", "rules")
    for length in (88, 100):
        run(here, "ruff", "format", "--isolated", "--check", f"--line-length={length}", "rules")
    run(here, "mypy", "--strict", "--cache-dir", str(here / "cache"), "rules")


def test_the_rule_has_the_first_free_code_and_a_runbook(here: Path) -> None:
    for name in ("HighLoss", "LowLoss"):
        assert main(["rules", "new", name, "--folder", "mine"]) == 0
    first, second = ((here / f"mine/{m}.py").read_text() for m in ("high_loss", "low_loss"))
    assert first.startswith('"""USR901 HighLoss: ')
    assert second.startswith('"""USR902 LowLoss: ')
    for part in ("Why it hurts", "How it is computed", "Remedy", "False alarms to expect",
                 "Missing data", "Source"):  # fmt: skip
        assert f"**{part}.**" in first


def test_it_says_what_to_do_next(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "new", "HighLoss"]) == 0
    told = capsys.readouterr().out
    for words in (
        "pytest rules",
        "trainwarden check --rules-folder rules",
        "trainwarden replay --rules-folder rules --rules HighLoss",
        "-c trainwarden.custom_rules=rules",
    ):
        assert words in told
    assert main(["rules", "new", "LowLoss", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"] == "LowLoss"
    assert all((here / path).is_file() for path in found["files"])


@pytest.mark.usefixtures("here")
def test_what_it_says_to_type_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "new", "HighLoss", "--folder", "my rules"]) == 0
    assert "trainwarden check --rules-folder 'my rules'" in capsys.readouterr().out


def test_without_new_it_is_still_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    assert "ExplodingTensor" in capsys.readouterr().out
    assert main(["rules", "--json"]) == 0
    assert "Overfit" in {row["rule"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("high-loss", "did you mean HighLoss?"),
        ("highLoss", "did you mean HighLoss?"),
        ("X", "3 to 48 letters"),
        ("1st", "as HighLoss"),
        ("../../Evil", "did you mean Evil?"),
        ("Bösartig", "did you mean BSartig?"),
        ("A" * 49, "3 to 48 letters"),
        ("HighLoss\n", "did you mean HighLoss?"),
        ("Overfit", "Trainwarden has Overfit"),
        ("OverFit", "Trainwarden has Overfit"),
        ("Json", "Python's or an installed package's"),
        ("Torch", "Python's or an installed package's"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(
    here: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", "new", name]) == 2
    assert said in capsys.readouterr().err
    assert not (here / "rules").exists()


def test_what_is_there_is_never_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for taken in ("rules/high_loss.py", "rules/tests/test_low_loss.py"):
        path = here / taken
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    for name in ("HighLoss", "LowLoss"):
        assert main(["rules", "new", name]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert {path.read_text() for path in here.rglob("*.py")} == {"mine"}
    (here / "rules/tests/conftest.py").write_text("mine")
    assert main(["rules", "new", "FlatLoss"]) == 0
    assert (here / "rules/tests/conftest.py").read_text() == "mine"


def test_a_folder_that_is_a_file_or_has_no_code_left_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "rules").write_text("")
    assert main(["rules", "new", "HighLoss"]) == 2
    full = here / "full"
    full.mkdir()
    (full / "a.py").write_text("\n".join(f"USR{number}" for number in range(901, 1000)))
    assert main(["rules", "new", "HighLoss", "--folder", "full"]) == 2
    said = capsys.readouterr().err
    assert "a folder for rules" in said
    assert "USR901 to USR999" in said


def test_names_of_modules() -> None:
    assert [stem(n) for n in ("HighLoss", "NLPRatio", "Top5Loss")] == [
        "high_loss", "nlp_ratio", "top5_loss",
    ]  # fmt: skip


def test_nothing_is_written_while_it_is_planned(tmp_path: Path) -> None:
    assert len(scaffold("HighLoss", tmp_path / "rules")) == 3
    assert not (tmp_path / "rules").exists()
