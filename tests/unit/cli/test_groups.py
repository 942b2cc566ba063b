"""Verdicts as a person reads them, and what a rule says of one job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainwarden.cli import groups, views
from trainwarden.cli.main import main
from trainwarden.cli.render import Output
from trainwarden.cli.watch import sentence
from trainwarden.config import resolve
from trainwarden.engine import Engine
from trainwarden.model import Json
from trainwarden.pipeline import outcome
from trainwarden.store.ports import Entry, EntryKind, JobRecord


@pytest.fixture(autouse=True)
def _explains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no rule explain another, whatever the catalogue says: only the set is a group."""
    outcome._judge.cache_clear()
    monkeypatch.setattr("trainwarden.engine.engine.explained", dict)
    yield
    outcome._judge.cache_clear()


def standing() -> JobRecord:
    """Return a job in which a set of two rules found issues, and another rule crashed."""
    tags = {
        "trainwarden:rules": "DeadRelu Overfit LossNotDecreasing ClassImbalance VanishingGradient",
        "trainwarden:set:learning": "LossNotDecreasing Overfit",
    }
    config = resolve(tags=tags)
    assert config.problems == ()
    state = Engine(config.rules, config.sets).start()
    ill = {"status": "IssuesFound", "findings": 1, "inspected": 3}
    state["rules"]["LossNotDecreasing"] |= {**ill, "since": 40, "note": "the loss stays"}
    state["rules"]["Overfit"] |= {**ill, "since": 90, "note": "validation rises"}
    state["rules"]["VanishingGradient"] |= {**ill, "since": 95, "note": "no gradient comes"}
    state["rules"]["DeadRelu"] |= {
        "status": "NoIssuesFound",
        "note": "inspected nothing: capture activations",
    }
    state["rules"]["ClassImbalance"] |= {"status": "NoIssuesFound", "inspected": 4}
    return JobRecord("job", config=config.to_json(), rules=state)


FINDINGS = [
    Entry(
        EntryKind.FINDING, rule, {"rule": rule, "confidence": sure, "remedies": [f"Mend {rule}."]}
    )
    for rule, sure in (("learning", 1.0), ("VanishingGradient", 0.8), ("Overfit", 0.6))
]


def test_each_group_says_its_cause_its_symptoms_and_what_to_try_and_the_rest_is_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups.tell(views.verdict_rows(standing(), FINDINGS), Output(as_json=False), "nothing")
    text = capsys.readouterr().out
    assert [line.rstrip() for line in text.splitlines()] == [
        "VanishingGradient IssuesFound since step 95 (error, GRD001, 80 % sure)",
        "  no gradient comes",
        "  what to try, most likely first",
        "    1. Mend VanishingGradient.",
        "",
        "learning IssuesFound since step 40 (warning, SET001)",
        (
            "  2 of 2 rules found issues (any had to): LossNotDecreasing since step 40, "
            "Overfit since step 90"
        ),
        "  explains",
        "    LossNotDecreasing IssuesFound since step 40 (warning, LOS001): the loss stays",
        "    Overfit IssuesFound since step 90 (warning, LOS002, 60 % sure): validation rises",
        "  what to try, most likely first",
        "    1. Mend learning.",
        "",
        "no issues: ClassImbalance",
        "not evaluated, nothing to look at:",
        "  DeadRelu: capture activations",
    ]


@pytest.mark.parametrize(
    ("framework", "page"),
    [
        ("xgboost 3.2.0", "docs/xgboost.md"),
        ("lightgbm 4.7.0", "docs/lightgbm.md"),
        ("scikit-learn 1.9.1", "docs/sklearn.md"),
        ("jax 0.10.2", "docs/jax.md"),
        ("keras 3.15.1 on jax", "docs/keras.md"),
    ],
)
def test_what_a_run_lacks_is_told_in_the_words_of_its_framework(
    framework: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = replace(standing(), manifest={"framework": framework})
    groups.tell(views.verdict_rows(record), Output(as_json=False), "nothing")
    said = capsys.readouterr().out.splitlines()[-1]
    name = framework.partition(" ")[0]
    assert said == f"  DeadRelu: not in this run of {name}; {page} says what can be recorded"
    assert (Path(__file__).parents[3] / page).is_file()


def test_rules_that_lack_the_same_share_a_line_for_all_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    here = [{"rule": rule, "status": "not evaluated", "note": "same"} for rule in ("A", "B")]
    groups.tell_blind([here, here[:1]], Output(as_json=False))
    assert capsys.readouterr().out.splitlines()[1:] == ["  A, B (in 1 of 2 runs): same"]


def test_no_verdict_at_all_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    groups.tell([], Output(as_json=False), "no rule has judged this run")
    assert capsys.readouterr().out == "no rule has judged this run\n"


def test_watch_says_whose_symptom_a_verdict_is() -> None:
    rows = {row["rule"]: row for row in views.verdict_rows(standing())}
    told = sentence({"kind": "verdict", **rows["Overfit"]})
    assert told == (
        "verdict Overfit: IssuesFound since step 90, a symptom of learning: validation rises"
    )


def test_an_action_is_told_alike_wherever_it_is() -> None:
    body = {"kind": "stop", "rule": "Overfit", "outcome": "refused", "reason": "no tag"}
    assert sentence(body) == views.action(body) == "stop for Overfit refused: no tag"


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["explain", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_explain_says_what_a_rule_found_in_a_job_and_how_sure_it_is(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("--job", "sick", "--at", str(runs))
    code, out, _ = explained(capsys, "GRD001", *job)
    assert code == 0
    assert out.startswith("VanishingGradient IssuesFound since step")
    assert "what to try, most likely first" in out
    assert "confidence" in out
    _, out, _ = explained(capsys, "vanishinggradient", *job, "--json")
    told: Json = json.loads(out)
    assert told["status"] == "IssuesFound"
    assert told["evidence"][0]["confidence"] == told["confidence"]
    code, _, err = explained(capsys, "NoSuchRule", *job)
    assert code == 2
    assert "sick has no rule NoSuchRule: it has" in err
