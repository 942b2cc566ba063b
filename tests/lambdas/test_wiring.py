"""The environment is read in one place, and what it says reaches the pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lambdas.shared import wiring
from trainwarden.pipeline import Pipeline
from trainwarden.store.dynamo import DynamoLedger
from trainwarden.store.sagemaker import SageMakerJobs

ROOT = Path(__file__).parents[2]


def test_the_pipeline_is_made_once_from_the_environment(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws
    monkeypatch.setenv("BUCKET_NAME", "inbox")
    monkeypatch.setenv("TABLE_NAME", "ledger")
    first = wiring.pipeline()
    assert isinstance(first, Pipeline)
    assert wiring.pipeline() is first
    assert wiring.training_jobs.cache_info().currsize == 0  # until a job is asked for
    assert isinstance(wiring.ledger(), DynamoLedger)
    assert isinstance(wiring.training_jobs(), SageMakerJobs)


def test_settings_come_from_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = {"rules": "Overfit", "stop_on": "warning", "subscribers": ["ml@example.com"]}
    monkeypatch.setenv("DEFAULTS", json.dumps(defaults))
    monkeypatch.setenv("DRY_RUN", "true")
    settings = wiring.settings()
    assert (settings.defaults, settings.stop_on, settings.dry_run) == (defaults, "warning", True)
    monkeypatch.delenv("DEFAULTS")
    monkeypatch.setenv("DRY_RUN", "false")
    assert (wiring.settings().stop_on, wiring.settings().dry_run) == ("error", False)


@pytest.mark.parametrize("value", ["True", "1", "yes", "flase", ""])
def test_a_dry_run_ends_only_with_a_plain_false(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRY_RUN", value)
    assert wiring.settings().dry_run


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("notifier", "boto3 numpy trainwarden.rules trainwarden.pipeline"),
        ("announcer", "boto3 trainwarden.rules trainwarden.pipeline"),
        ("evaluator", "boto3 torch pydantic aws_cdk jsonschema"),
    ],
)
def test_a_function_imports_no_more_than_it_needs(package: str, unwanted: str) -> None:
    code = (
        f"import sys, lambdas.{package}.handler\n"
        f"print(*[name for name in {unwanted.split()!r} if name in sys.modules])"
    )
    paths = [str(ROOT), str(ROOT / "layers" / "core" / "python")]
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(paths), "AWS_DEFAULT_REGION": "eu-central-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == []


@pytest.mark.parametrize(
    "package", ["announcer", "evaluator", "jobs", "notifier", "stopper", "sweeper"]
)
def test_a_handler_is_thin_and_reads_no_environment(package: str) -> None:
    text = (ROOT / "lambdas" / package / "handler.py").read_text()
    assert len(text.splitlines()) <= 60
    assert "environ" not in text
