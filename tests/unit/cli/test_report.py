"""``trainwarden report``: which run is meant, what is written, and what is said if it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xgboost

import trainwarden
from tests.unit.report.made import Page
from trainwarden.cli.main import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(here: Path, *argv: str) -> Page:
    assert main(["report", *argv]) == 0
    return Page((here / "report.html").read_text("utf-8"))


def test_a_sick_run_is_shown_with_cause_evidence_and_remedies(runs: Path, here: Path) -> None:
    text = page(here, str(runs), "--job", "sick").text
    assert "VanishingGradient IssuesFound since step" in text
    assert "What to try, most likely first" in text
    assert "Evidence of VanishingGradient" in text
    assert "Not evaluated: nothing to look at" in text


def test_a_healthy_run_has_no_issue_and_learns(runs: Path, here: Path) -> None:
    text = page(here, str(runs / "jobs/healthy")).text
    assert "No rule found an issue." in text
    assert "loss, training" in text
    assert "Confusion: rows by label and prediction" in text


def test_a_job_is_found_where_other_commands_find_it(runs: Path, here: Path) -> None:
    text = page(here, "healthy", "--at", str(runs)).text
    assert f"Where the folder {runs}" in text
    assert "No rule found an issue." in text


def test_nothing_is_written_where_the_run_lies(runs: Path, here: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    page(here, str(runs), "--job", "sick")
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_machines_are_told_what_was_written(
    runs: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("report", str(runs), "--job", "sick", "--out", "a/b.html", "--json")
    assert main(argv) == 0
    told = json.loads(capsys.readouterr().out)
    size = (here / "a/b.html").stat().st_size
    assert told == {"job": "sick", "file": "a/b.html", "bytes": size}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("{runs}",), "name one of healthy, sick with --job"),
        (("{runs}", "--job", "well"), "no run well"),
        (("{here}",), "no recorded run"),
        (("missing", "--job", "sick"), "name either a job or a folder"),
        (("well", "--at", "{runs}"), "knows no job well"),
        (("{runs}", "--job", "sick", "--out", "{runs}"), "a file that can be written"),
    ],
)
def test_what_cannot_be_reported_is_said(
    runs: Path, here: Path, argv: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [word.format(runs=runs, here=here) for word in argv]
    assert main(["report", *told]) == 2
    assert said in capsys.readouterr().err
    assert not (here / "report.html").exists()


def boosted(labels: object, inputs: object, objective: str) -> None:
    train = xgboost.DMatrix(inputs, labels, feature_names=["age", "a & b", "height"])
    xgboost.train(
        {"objective": objective, "max_depth": 3, "nthread": 1},
        train,
        20,
        evals=[(train, "train"), (train, "validation")],
        verbose_eval=False,
        callbacks=[trainwarden.XGBoostCallback(train, job="xgb", out="runs", strict=True)],
    )


@pytest.mark.parametrize(
    ("objective", "loss", "headings"),
    [
        (
            "binary:logistic",
            "logloss",
            ("Confusion: rows by label and prediction", "Ranking, round 10", "Precision over"),
        ),
        (
            "reg:squarederror",
            "rmse",
            ("Residuals, round 10", "Error by range of the label, round 10", "Distribution of"),
        ),
    ],
)
def test_a_boosted_run_has_what_sagemakers_report_had(
    here: Path, objective: str, loss: str, headings: tuple[str, ...]
) -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(200, 3))
    labels = inputs[:, 0] + 0.1 * random.normal(size=200)
    boosted(labels > 0 if objective.startswith("binary") else labels, inputs, objective)
    text = page(here, "runs").text
    for words in (
        *headings, f"{loss}, training", f"{loss}, validation", "lr_0", "a & b", "Trees",
        *(f"{kind}: " for kind in ("weight", "gain", "cover", "total_gain", "total_cover")),
    ):  # fmt: skip
        assert words in text
