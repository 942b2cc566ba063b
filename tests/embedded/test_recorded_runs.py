"""Runs recorded to a bucket of the embedded AWS, replayed and reported from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import record
from trainwarden.cli.main import main
from trainwarden.embedded.launcher import Server

BUCKET = "recorded"


@pytest.fixture(scope="module")
def bucket(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A sick and a healthy run below two prefixes of one bucket."""
    s3 = server.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    runs = tmp_path_factory.mktemp("runs")
    record(runs, "sick", healthy=False, steps=60)
    record(runs, "healthy", healthy=True, steps=60)
    for path in (runs / "jobs").rglob("*.tw"):
        for prefix in ("team/a", "team/b"):
            key = f"{prefix}/{path.relative_to(runs).as_posix()}"
            s3.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    return f"s3://{BUCKET}"


@pytest.fixture(autouse=True)
def here(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.state.parent)  # where it was brought up
    monkeypatch.delenv("TRAINWARDEN_AT", raising=False)


def replayed(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    main(("replay", *argv, "--json"))
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_many_runs_below_a_prefix_are_replayed(
    bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = replayed(capsys, f"{bucket}/team", "--rules", "VanishingGradient")
    assert [(one["place"], one["job"], bool(one["fired"])) for one in found] == [
        (f"{bucket}/team/{inner}", job, job == "sick")
        for inner in "ab"
        for job in ("healthy", "sick")
    ]
    assert {(one["last_step"], *one["problems"]) for one in found} == {(50,)}


def test_one_run_is_replayed_and_reported(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{bucket}/team/b/jobs/sick"
    (one,) = replayed(capsys, place, "--at", "local", "--rules", "VanishingGradient")
    assert [fired["rule"] for fired in one["fired"]] == ["VanishingGradient"]
    page = tmp_path / "report.html"
    assert main(("report", place, "--out", str(page))) == 0
    text = page.read_text("utf-8")
    assert "VanishingGradient" in text
    assert f"{bucket}/team/b" in text


@pytest.mark.parametrize("verb", ["replay", "report"])
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("s3://no-such-bucket", "check the bucket's name and the account"),
        (f"s3://{BUCKET}/nothing", f"no recorded run in s3://{BUCKET}/nothing: expected jobs/"),
        (f"s3://{BUCKET}/team/a/jobs/gone", "no recorded run in"),
    ],
)
@pytest.mark.usefixtures("bucket")
def test_what_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], verb: str, place: str, said: str
) -> None:
    assert main((verb, place)) == 2
    assert said in capsys.readouterr().err
