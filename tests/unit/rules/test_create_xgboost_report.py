"""CreateXgboostReport: a name that jobs still ask for; it never fires."""

from __future__ import annotations

from tests.unit.rules.runs import FACTS, NAN, Script, fold
from trainwarden.config import resolve
from trainwarden.engine import RuleSpec, replay
from trainwarden.model import Mode, Status
from trainwarden.rules import build, names
from trainwarden.rules.create_xgboost_report import CreateXgboostReport

RULE = CreateXgboostReport()
ROUND = {"trees": {"depth": 99.0, "leaves": NAN}, "feature_importance": {"gain/age": 1.0}}


def test_it_never_fires_and_keeps_nothing() -> None:
    run = [Script().step(i, loss=NAN, scalars={**FACTS, **ROUND}) for i in range(20)]
    assert fold(RULE, run) == ({}, [])


def test_it_counts_the_rounds_that_a_report_can_show() -> None:
    told = [Script().step(i, scalars=ROUND) for i in range(3)]
    told.append(Script().step(3, loss=1.0))
    told.append(Script().step(3, mode=Mode.EVAL, scalars=ROUND))
    found = replay([RuleSpec("CreateXgboostReport", "CreateXgboostReport")], told)
    assert found.findings == ()
    (verdict,) = found.changed
    assert verdict.status is Status.NO_ISSUES_FOUND
    assert verdict.inspected == 3


def test_it_runs_in_sagemakers_profile_and_on_request_only() -> None:
    assert "CreateXgboostReport" in names("sagemaker")
    assert "CreateXgboostReport" not in names()
    assert build("CreateXgboostReport", profile="sagemaker") == RULE


def test_a_job_that_asks_for_it_is_understood() -> None:
    config = resolve(tags={"trainwarden:rules": "CreateXgboostReport"})
    assert config.problems == ()
    assert [spec.name for spec in config.rules] == ["CreateXgboostReport"]
