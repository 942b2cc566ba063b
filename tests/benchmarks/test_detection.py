"""The detection benchmark counts as the cases' own score does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import detection
from trainwarden.engine import CRASH_CODE
from trainwarden.model import Finding, Severity
from trainwarden.rules import registry

CASE = {"id": "c", "labels": ["a"], "accept": ["a", "b"], "tolerate": ["t"]}
NEGATIVE = {"id": "n"}


def run(variant: str, labels: dict[str, int], steps: int = 100) -> detection.Run:
    return detection.Run("c", variant, 0, steps, labels)


def scored(*pairs: tuple[dict[str, Any], detection.Run]) -> dict[str, str]:
    score = detection.Score()
    for case, one in pairs:
        score.add(case, one)
    return {what: measured.split()[0] for what, measured, _ in score.table()}


def test_every_rule_has_a_label() -> None:
    assert set(detection.LABELS) == set(registry())


def test_root_cause_right_label_and_wrong_label_are_told_apart() -> None:
    table = scored(
        (CASE, run("faulty", {"a": 10})),
        (CASE, run("faulty", {"b": 30, "x": 1})),
        (CASE, run("faulty", {"x": 1})),
        (CASE, run("faulty", {"t": 1})),
    )
    assert table["alarms on faults"] == "0.750"
    assert table["right label"] == "0.500"
    assert table["root cause"] == "0.250"
    assert table["precision of labels"] == "0.500"
    assert table["median share of the run passed at the first right finding"] == "0.20"


def test_whatever_a_healthy_run_says_is_a_false_alarm() -> None:
    table = scored(
        (CASE, run("healthy", {"a": 1})),
        (CASE, run("healthy", {})),
        (NEGATIVE, run("healthy", {"t": 1})),
    )
    assert table["false alarms, twins"] == "1/2"
    assert table["false alarms, negatives"] == "1/1"
    assert table["false alarms, all healthy"] == "0.667"


def test_a_folder_of_cases_is_run_and_written_as_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"cases": [], "hard_negatives": [{"id": "n", "module": "m", "title": "quiet"}]})
    )
    (tmp_path / "core.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "core", raising=False)

    def quiet_but_for_seed_1(
        _: Any, case: dict[str, Any], variant: str, seed: int, __: int | None
    ) -> detection.Run:
        return detection.Run(case["id"], variant, seed, 7, {"overfit": 3} if seed else {})

    monkeypatch.setattr(detection, "run", quiet_but_for_seed_1)
    threads = torch.get_num_threads()
    out = tmp_path / "rows.json"
    assert detection.main([str(tmp_path), "--seeds", "0", "1", "--json", str(out)]) == 0
    torch.set_num_threads(threads)
    sys.modules.pop("core", None)
    assert json.loads(out.read_text()) == {
        "rows": [
            {"id": "n", "variant": "healthy", "seed": 0, "labels": {}, "steps": 7},
            {"id": "n", "variant": "healthy", "seed": 1, "labels": {"overfit": 3}, "steps": 7},
        ]
    }
    assert "FALSE ALARM" in capsys.readouterr().out


def finding(rule: str, step: int, **more: Any) -> Finding:
    return Finding(step, "", 0.0, 0.0, "said", step, rule=rule, **more)


def test_labels_are_first_warnings_and_neither_hints_nor_crashes() -> None:
    found = (
        finding("Overfit", 40, severity=Severity.WARNING),
        finding("Overfit", 20, severity=Severity.WARNING),
        finding("AllZero", 3, severity=Severity.INFO),
        finding("DeadRelu", 4, severity=Severity.WARNING, code=CRASH_CODE),
    )
    one = detection.summed_up("c", "faulty", 0, 100, found)
    assert one.labels == {"overfit": 40}
    assert one.crashed == ("DeadRelu",)


def test_boosted_cases_are_run_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost")
    assert detection.boosted(tmp_path, [0], None) == []
    (tmp_path / "xgb").mkdir()
    (tmp_path / "xgb" / "cases.py").write_text(BOOSTED)
    runs = detection.boosted(tmp_path, [0], None)
    assert [(r.case, r.variant, r.steps) for r in runs] == [
        ("deep", "faulty", 40),
        ("deep", "healthy", 40),
    ]
    assert {"overfit", "tree_depth"} <= set(runs[0].labels)
    assert runs[1].labels == {}
    assert "right 1/1" in capsys.readouterr().out


BOOSTED = """
import numpy as np, xgboost
from sklearn.datasets import load_diabetes

def run(hook, variant, seed=0):
    x, y = load_diabetes(return_X_y=True)
    deep = {"max_depth": 14, "min_child_weight": 0, "reg_lambda": 0, "eta": 0.3}
    parameters = deep if variant == "faulty" else {"max_depth": 2, "eta": 0.05}
    train, test = xgboost.DMatrix(x[:320], y[:320]), xgboost.DMatrix(x[320:], y[320:])
    hook.on_start(parameters, train, test)
    booster = xgboost.Booster({"nthread": 1, "seed": seed, **parameters}, [train, test])
    for i in range(40):
        booster.update(train, i)
        told = booster.eval_set([(train, "train"), (test, "validation")], i)
        values = [float(part.split(":")[1]) for part in told.split("\t")[1:]]
        evals = {"train": {"rmse": values[0]}, "validation": {"rmse": values[1]}}
        hook.on_round(i, booster, evals)
    hook.on_end(booster)

CASES = {"deep": {"run": run, "accept": ["overfit", "tree_depth"]}}
"""
