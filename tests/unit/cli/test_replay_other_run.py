"""``trainwarden replay`` with a rule that compares with another recorded run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from trainwarden.cli.main import main

RULE = ("--rules", "SimilarAcrossRuns", "--job", "sick", "--workers", "1", "--json")


def replayed(capsys: pytest.CaptureFixture[str], place: str, other: str) -> dict[str, Any]:
    main(("replay", place, *RULE, "--set", f"SimilarAcrossRuns.other_trial={other}"))
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


def test_a_run_is_like_itself(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = replayed(capsys, str(runs), "sick")
    assert found["fired"] == []
    assert found["not_evaluated"] == []


@pytest.mark.parametrize("other", ["healthy", "{runs}/jobs/healthy"])
def test_another_job_is_named_or_lies_in_a_folder(
    runs: Path, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    (fired,) = replayed(capsys, str(runs), other.format(runs=runs))["fired"]
    assert fired["rule"] == "SimilarAcrossRuns"
    assert fired["step"] == 0
    assert "tensors differ from those of" in fired["message"]


def test_another_job_lies_in_a_bucket(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        client = boto3.client("s3", region_name="eu-central-1")
        client.create_bucket(
            Bucket="others", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        for path in sorted(p for p in runs.rglob("*") if p.is_file()):
            client.put_object(
                Bucket="others", Key=path.relative_to(runs).as_posix(), Body=path.read_bytes()
            )
        found = replayed(capsys, str(runs), "s3://others/jobs/healthy")
    assert [one["rule"] for one in found["fired"]] == ["SimilarAcrossRuns"]


def test_a_run_that_is_not_there_is_a_problem(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed(capsys, str(runs), "nobody")
    assert found["last_step"] == -1
    assert "nobody" in found["problems"][0]
