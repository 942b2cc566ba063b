"""The report of a run: what is on the page, and that nothing recorded can get out of its text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.report.made import JOB, Page, written
from tests.unit.rules.runs import INF, NAN, Script, tensor
from trainwarden.errors import NotFoundError
from trainwarden.model import Json, Mode, Observation
from trainwarden.report import Judged, read, render
from trainwarden.report.values import Row
from trainwarden.store.memory import MemoryObjects
from trainwarden.wire.keys import StepsKey

HOSTILE = (
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "</title></style></svg><svg onload=document.title='taken'>",
    '" onmouseover="document.title=\'taken\'" x="',
    "' style='background:url(http://example.com/)'",
    "&lt;b&gt; & <!-- <![CDATA[ ]]> -->",
    "\u202eevil\u2066\x00\x1b[31m\ud800",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)


def row(rule: str, status: str, **other: Json) -> dict[str, Json]:
    return {
        "rule": rule, "code": "NUM001", "status": status, "since_step": None, "findings": 0,
        "inspected": 3, "note": None, "cause": None, "severity": "warning", "confidence": None,
        "remedies": [], **other,
    }  # fmt: skip


def finding(rule: str, **other: Json) -> dict[str, Json]:
    return {
        "rule": rule, "step": 7, "first_step": 5, "tensor": "fc1.weight", "value": 12.5,
        "limit": 10.0, "message": "it is 12.5", "evidence": {"saved_steps": 3}, **other,
    }  # fmt: skip


def run(*observations: Observation, framework: str = "torch 2.8") -> Any:
    return read(written(observations, framework=framework), JOB)


def page(judged: Judged | None = None, *observations: Observation, boosted: bool = False) -> Page:
    framework = "xgboost 3.0" if boosted else "torch 2.8"
    told = observations or (Script().step(0, loss=1.0),)
    return Page(render(judged or Judged(JOB), run(*told, framework=framework)))


def test_it_is_one_document_that_loads_and_runs_nothing() -> None:
    text = render(Judged(JOB), run(*(Script().step(i, loss=1.0 / (i + 1)) for i in range(5))))
    found = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert not {"script", "link", "img", "iframe", "object", "a", "base"} & {
        name for name, _ in found.tags
    }
    policies = [a["content"] for t, a in found.tags if t == "meta" and "http-equiv" in a]
    assert policies == [
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    ]
    assert not re.search(r"https?:|url\(|@import|\bon\w+=", text)
    assert "prefers-color-scheme:dark" in text


def test_verdicts_stand_by_cause_with_symptoms_evidence_and_remedies() -> None:
    rows: list[Row] = [
        row("Cause", "IssuesFound", since_step=5, note="too large", findings=9, severity="error",
            remedies=["Lower it.", "Clip it."], confidence=0.8),
        row("Symptom", "IssuesFound", since_step=6, cause="Cause", note="so it spikes"),
        row("Crashed", "Error", note="division by zero"),
        row("Fine", "NoIssuesFound"),
        row("Blind", "not evaluated", note="inspected nothing: pass the loss function"),
        row("Deaf", "not evaluated", note="inspected nothing: pass the loss function"),
    ]  # fmt: skip
    found = page(Judged(JOB, rows=rows, findings=[finding("Cause"), finding("Symptom", step=8)],
                        problems=["no rule Overfitt, did you mean Overfit?"]))  # fmt: skip
    assert found.count("article") == 2
    assert "Cause IssuesFound since step 5 error, NUM001, 80 % sure too large" in found.text
    assert "Explains Symptom IssuesFound since step 6" in found.text
    assert "most likely first Lower it. Clip it." in found.text
    assert "Evidence of Cause, the first 1 of 9 findings" in found.text
    assert "7 fc1.weight 12.5 10 it is 12.5 saved steps 3" in found.text
    assert "No issues: Fine" in found.text
    assert "what to capture Blind, Deaf pass the loss function" in found.text
    assert "did you mean Overfit?" in found.text


def test_without_verdicts_or_issues_that_is_said() -> None:
    assert "No rule has judged this run." in page().text
    assert "No rule found an issue." in page(Judged(JOB, rows=[row("Fine", "NoIssuesFound")])).text


def test_losses_of_both_modes_and_rates_are_drawn_with_where_it_began() -> None:
    script = Script()
    told = [script.step(i, loss=2.0 - i / 10, scalars={"optimizer": {"lr_0": 0.1, "eps_0": 1e-8}})
            for i in range(10)]  # fmt: skip
    told += [script.step(9, mode=Mode.EVAL, loss=1.5)]
    ill = Judged(JOB, rows=[row("Bad", "IssuesFound", since_step=4)])
    found = page(ill, *told)
    assert found.count("figure") == 2
    for words in ("loss, training", "loss, validation", "lr_0", "Bad since step 4"):
        assert words in found.text
    assert "eps_0" not in found.text
    assert found.count("circle") == 1  # one evaluation is a dot
    assert {"s0", "s1", "mark"} <= found.classes()


def test_a_run_without_numbers_says_what_to_capture() -> None:
    found = page(None, Script(tensor("w", "weights")).step(0, {"w": np.ones((4, 4))}))
    assert found.count("figure") == 0
    assert "pass the loss function to watch()" in found.text


@pytest.mark.parametrize(
    "values",
    [
        [NAN] * 3,
        [INF, -INF, NAN],
        [1.0, NAN, 1e308, -1e308],
        [0.0] * 3,
        [1e308] * 3,
        [5e-324, 1e308],
        [-1.0, 1e-300],
        [3.0],
    ],
)
def test_any_numbers_are_drawn_within_the_picture(values: list[float]) -> None:
    script = Script()
    found = page(None, *(script.step(10 * i, loss=v) for i, v in enumerate(values)))
    numbers = [float(n) for t, a in found.tags if t == "path"
               for n in re.findall(r"-?[\d.]+", a["d"] or "")]  # fmt: skip
    assert all(0 <= number <= 640 for number in numbers)
    assert found.count("figure") == any(np.isfinite(values))


def test_a_spike_of_one_step_in_many_is_still_drawn() -> None:
    script = Script()
    values = [1.0] * 5000
    values[2345] = 9.0
    found = page(None, *(script.step(i, loss=v) for i, v in enumerate(values)))
    (curve,) = [a["d"] or "" for t, a in found.tags if t == "path"]
    heights = [float(y) for y in re.findall(r" (-?[\d.]+)", curve)]
    assert min(heights) < 25
    assert max(heights) > 190
    assert len(heights) < 1000


def classified(step: int, counts: list[int], *, mode: Mode = Mode.TRAIN) -> Observation:
    """A step with two classes; ``counts`` are label x prediction."""
    a, b, c, d = counts
    tables = {
        "label/0": {0: a + b, 1: c + d}, "predicted/0": {0: a + c, 1: b + d},
        "correct/0": {0: a, 1: d}, "confusion/0": {i: n for i, n in enumerate(counts) if n},
    }  # fmt: skip
    facts = {"objective": {"logistic.classes": 2.0}}
    return Script().step(step, mode=mode, loss=1.0, scalars=facts, labels=tables)


def test_classes_confusion_and_measures_of_the_last_round() -> None:
    told = [classified(0, [10, 20, 5, 65]), classified(10, [20, 10, 5, 65])]
    found = page(None, *told, boosted=True)
    assert "Training, step 10" in found.text
    assert "class 0 30 (30.0 %), predicted 25 class 1 70 (70.0 %), predicted 75" in found.text
    assert "Accuracy: 85.0 %" in found.text
    assert "label \\ predicted 0 1 0 20 10 1 5 65" in found.text
    assert "class 0 30 80.0 % 66.7 % 72.7 % class 1 70 86.7 % 92.9 % 89.7 %" in found.text
    assert "Share of each class predicted right" in found.text


def test_training_batches_are_added_up_and_validation_stands_apart() -> None:
    told = [classified(i, [2, 0, 1, 1]) for i in range(12)]
    found = page(None, *told, classified(11, [5, 0, 0, 5], mode=Mode.EVAL))
    assert "Training, steps 2 to 11" in found.text
    assert "label \\ predicted 0 1 0 20 0 1 10 10" in found.text
    assert "Validation, step 11" in found.text
    assert "Accuracy: 100.0 %" in found.text


@pytest.mark.parametrize(
    ("classes", "cell"), [(NAN, 0), (INF, 0), (2.0, 99), (2.0, -1), (1e12, 0), (31.0, 0)]
)
def test_a_confusion_that_makes_no_sense_is_left_out(classes: float, cell: int) -> None:
    tables = {"label/0": {0: 3}, "confusion/0": {cell: 3}}
    obs = Script().step(0, scalars={"objective": {"f.classes": classes}}, labels=tables)
    assert "Confusion" not in page(None, obs).text


def test_what_only_a_boosted_run_has() -> None:
    info = (tensor("label/0", "labels", (3,)), tensor("output/0", "outputs", (3,)),
            tensor("residual/0", "outputs", (3,)))  # fmt: skip
    script, told = Script(*info), []
    for i in range(3):
        worth = {f"{kind}/{name}": share for kind in ("weight", "gain", "cover", "total_gain",
                 "total_cover") for name, share in (("age", 0.75), ("place", 0.25))}  # fmt: skip
        values = {
            "label/0": np.array([1.0, 2.0, 3.0]),
            "output/0": np.array([1.0, 1.0, 1.0]),
            "residual/0": np.array([0.0, 1.0, 2.0]),
        }
        shape = {"depth": 3.0 + i, "leaves": 7.0, "largest_node": 20.0, "trees": 1.0}
        scalars = {"trees": shape, "feature_importance": {**worth, "gain/": 60.0}}
        told.append(script.step(i, values, loss=1.0, scalars=scalars))
    found = page(None, *told, boosted=True)
    for words in (
        "Feature importance, round 2",
        "gain: mean gain of its splits, the first 2 of 60 features",
        "total_cover: rows of all its splits feature share of all age 75.0 % place 25.0 %",
        "Residuals, round 2",
        "residual (label - prediction) 0 2 1 0.8165 1.291 1",
        "Depth of the deepest tree",
        "largest node 20",
    ):
        assert words in found.text
    assert sum(t == "rect" and a["width"] == "33.3%" for t, a in found.tags) == 5


def test_workers_are_merged_and_what_cannot_be_read_is_said() -> None:
    one, two = ([Script().step(0, loss=value)] for value in (1.0, 3.0))
    two = [Observation(0, Mode.TRAIN, 0, 1e9, scalars=two[0].scalars, workers=(1,))]
    store = written(one, two)
    assert [obs.scalars["losses"]["loss"] for obs in read(store, JOB).points] == [2.0]
    store.put(str(StepsKey(JOB, 0, 1)), b"rubbish")
    assert "1 objects, left out here" in Page(render(Judged(JOB), read(store, JOB))).text


def test_objects_of_an_earlier_run_under_the_same_name_are_not_shown() -> None:
    store = written([Script().step(0, loss=1.0)])
    earlier = written([Script().step(5, loss=9.0)], run="run-0")
    body = earlier.get(str(StepsKey(JOB, 0, 0)), max_bytes=1 << 20)
    assert body
    store.put(str(StepsKey(JOB, 0, 1)), body)
    found = read(store, JOB)
    assert [obs.step for obs in found.points] == [0]
    assert found.unread == 0


def test_a_run_that_is_not_there() -> None:
    with pytest.raises(NotFoundError):
        read(MemoryObjects(), JOB)


def hostile(word: str) -> str:
    """Everything that a run or a rule may name is the same hostile word."""
    known = word.encode("utf-8", "replace").decode()  # what the wire format lets through
    numbers = {known: 0.5, f"gain/{known}": 0.5, f"lr_{known}": 0.1}
    scalars = dict.fromkeys(("metrics", "feature_importance", "trees", "optimizer"), numbers)
    told = [Script().step(i, loss=1.0, scalars={**scalars, "losses": numbers}) for i in range(3)]
    rows: list[Row] = [
        row(word, status, code=word, note=word, severity=word, remedies=[word], cause=cause,
            since_step=since)
        for status, cause, since in (("IssuesFound", None, 1), ("IssuesFound", word, 2),
                                     ("not evaluated", None, None), ("NoIssuesFound", None, None))
    ]  # fmt: skip
    evidence = {word: word, "list": [word]}
    findings = [finding(word, tensor=word, message=word, evidence=evidence, value=word, step=word)]
    judged = Judged(word, word, word, word, word, rows, findings, [word])
    return render(judged, run(*told, framework=known[:200]))


@pytest.mark.parametrize("word", HOSTILE)
def test_a_hostile_name_stays_text(word: str) -> None:
    plain, text = Page(hostile("plain")), hostile(word)
    found = Page(text)
    assert [name for name, _ in found.tags] == [name for name, _ in plain.tags]
    assert [set(a) for _, a in found.tags] == [set(a) for _, a in plain.tags]
    assert text.encode("utf-8")
    assert not set("\x00\x1b\u202e\u2066") & set(text)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_real_browser_shows_it_and_runs_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(hostile(" ".join(HOSTILE)), "utf-8")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
               f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    assert title[1] != "taken"
    assert title[1].endswith("training report")
    assert not re.search(r"<(script|img)\b", done.stdout)
    assert done.stdout.count("<svg") == Page(path.read_text("utf-8")).count("svg")
