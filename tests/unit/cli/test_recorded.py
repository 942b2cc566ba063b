"""Where recorded runs are found: folders and addresses in S3, and what is said if there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from tests.unit.report.made import Page
from trainwarden.cli import recorded
from trainwarden.cli.main import main
from trainwarden.cli.recorded import Account, Run, find, open_place
from trainwarden.errors import BadInputError, NotFoundError
from trainwarden.pipeline import jobs_in
from trainwarden.store.s3 import S3Objects
from trainwarden.store.within import Within
from trainwarden.trial import open_trial

RULES = ("--rules", "VanishingGradient")


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)  # no embedded AWS is up from here
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "TRAINWARDEN_AT", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="bucket")
        yield client


@pytest.fixture
def filled(s3: Any, runs: Path) -> Any:
    """Runs at the top of a bucket, below two prefixes, and what is no run beside them."""
    for prefix in ("", "deep/er/", "team/a/", "team/b/"):
        for path in (runs / "jobs").rglob("*.tw"):
            key = f"{prefix}{path.relative_to(runs)}"
            if "sick" in key or prefix == "deep/er/":
                s3.put_object(Bucket="bucket", Key=key, Body=path.read_bytes())
    s3.put_object(Bucket="bucket", Key="team/readme.txt", Body=b"runs of the team")
    s3.put_object(Bucket="bucket", Key="team/c/model.tar.gz", Body=b"no run")
    return s3


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("place", "pattern", "expected"),
    [
        ("s3://bucket", "*", [Run("s3://bucket", "sick")]),
        ("s3://bucket/", "s?ck", [Run("s3://bucket", "sick")]),
        ("s3://bucket/jobs", "*", [Run("s3://bucket", "sick")]),
        ("s3://bucket/jobs/sick/", "*", [Run("s3://bucket", "sick")]),
        ("s3://bucket/jobs/sick", "other", []),
        ("s3://bucket/deep/er", "*", [Run("s3://bucket/deep/er", j) for j in ("healthy", "sick")]),
        ("s3://bucket/deep/er/", "sick", [Run("s3://bucket/deep/er", "sick")]),
        ("s3://bucket/deep/er/jobs/healthy", "*", [Run("s3://bucket/deep/er", "healthy")]),
        ("s3://bucket/team", "*", [Run(f"s3://bucket/team/{one}", "sick") for one in "ab"]),
        ("s3://bucket/team/c", "*", []),
        ("s3://bucket/nothing", "*", []),
        ("s3://bucket", "../sick", []),
    ],
)
def test_runs_are_found_below_an_address(place: str, pattern: str, expected: list[Run]) -> None:
    assert list(find(place, pattern)) == expected


@pytest.mark.parametrize("inner", ["", "jobs", "jobs/sick"])
def test_runs_are_found_in_a_folder_in_the_same_ways(runs: Path, inner: str) -> None:
    found = list(find(str(runs / inner), "sick"))
    assert [Path(run.place).resolve() for run in found] == [runs.resolve()]
    assert [run.job for run in found] == ["sick"]


def test_a_relative_folder_of_one_job_is_understood(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs / "jobs" / "sick")
    assert [run.job for run in find(".")] == ["sick"]


def test_a_bucket_called_jobs_is_a_bucket(s3: Any) -> None:
    s3.create_bucket(Bucket="jobs")
    assert list(find("s3://jobs")) == []
    assert list(find("s3://jobs/sick")) == []


def documents(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    main(("replay", *argv, "--workers", "1", "--json"))
    return {one["place"] + " " + one["job"]: one for one in json.loads(capsys.readouterr().out)}


@pytest.mark.usefixtures("filled")
def test_a_run_in_a_bucket_is_replayed_as_in_a_folder(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here,) = documents(capsys, str(runs), "--job", "sick", *RULES).values()
    there = documents(capsys, "s3://bucket/team", "s3://bucket/team/a", *RULES)
    assert set(there) == {"s3://bucket/team/a sick", "s3://bucket/team/b sick"}  # each one once
    for one in there.values():
        assert here["fired"]
        assert {**one, "place": here["place"]} == here


@pytest.mark.usefixtures("filled")
def test_a_run_in_a_bucket_is_reported_as_in_a_folder(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.cli.report.when", lambda _: "now")
    assert main(["report", str(runs), "--job", "sick", "--out", "here.html"]) == 0
    assert main(["report", "s3://bucket/team/b", "--out", "there.html"]) == 0
    here, there = (Page(Path(f"{one}.html").read_text("utf-8")).text for one in ("here", "there"))
    assert "Where s3://bucket/team/b" in there
    there = there.replace("Where s3://bucket/team/b", f"Where the folder {runs}")
    assert there == here


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ("replay", "s3://bucket/nothing"),
            "no recorded run in s3://bucket/nothing: expected jobs",
        ),
        (("replay", "s3://bucket", "--job", "x*"), "no recorded run in s3://bucket matches --job"),
        (("replay", "s3://missing"), "NoSuchBucket"),
        (("replay", "s3://"), "expected s3://bucket or s3://bucket/prefix"),
        (("replay", "s3://bucket", "--at", "local"), "no embedded AWS"),
        (
            ("report", "s3://bucket/nothing"),
            "no recorded run in s3://bucket/nothing: expected jobs",
        ),
        (("report", "s3://bucket/deep/er"), "name one of healthy, sick with --job"),
        (("report", "s3://bucket/deep/er", "--job", "x"), "no run x lies in s3://bucket/deep/er"),
        (("report", "s3://bucket/team", "--job", "sick"), "s3://bucket/team/a/jobs/sick, s3://"),
        (("report", "s3://missing"), "check the bucket's name and the account"),
        (("report", "s3://bucket", "--at", "runs"), "expected --at aws or --at local"),
        (("report", "s3://bucket", "--profile", "nobody"), "aws configure list-profiles"),
    ],
)
def test_what_cannot_be_found_is_said(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


class Denying:
    """An S3 client to which some calls are denied."""

    def __init__(self, client: Any, *calls: str) -> None:
        self._client, self._calls = client, calls

    def __getattr__(self, name: str) -> Any:
        def denied(**_: Any) -> None:
            answer: Any = {"Error": {"Code": "AccessDenied", "Message": "not you"}}
            raise ClientError(answer, name)

        return denied if name in self._calls else getattr(self._client, name)


@pytest.fixture
def deny(filled: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return lambda *calls: monkeypatch.setattr(
        recorded, "client", lambda *_: Denying(filled, *calls)
    )


@pytest.mark.parametrize("verb", ["replay", "report"])
def test_what_a_denied_listing_needs_is_named(
    deny: Callable[..., None], capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    deny("list_objects_v2")
    assert main((verb, "s3://bucket/team/a")) == 2
    err = capsys.readouterr().err
    assert "list s3://bucket/team/a/jobs/" in err
    assert "not you" in err
    assert "allow s3:ListBucket" in err


def test_denied_objects_are_that_runs_problem_and_name_the_permission(
    deny: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    deny("get_object")
    found = documents(capsys, "s3://bucket/deep/er", *RULES)
    assert len(found) == 2
    for one in found.values():
        assert one["last_step"] == -1
        assert "allow s3:GetObject and s3:ListBucket" in one["problems"][0]


@pytest.mark.usefixtures("s3")
def test_a_missing_key_of_ours_names_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BadInputError, match="check the credentials"):
        list(find("s3://bucket"))


def test_many_short_runs_are_listed_by_one_request(s3: Any) -> None:
    for job in range(300):
        s3.put_object(Bucket="bucket", Key=f"many/jobs/run-{job:03}/manifest.tw", Body=b"")
    calls: list[str] = []
    s3.meta.events.register("before-call.s3.ListObjectsV2", lambda **_: calls.append("list"))
    objects = Within(S3Objects("bucket", s3), "many/")
    assert len(jobs_in(objects)) == 300
    assert len(calls) == 1


def test_trials_are_opened_below_a_prefix_too(filled: Any) -> None:
    steps = open_trial("s3://bucket", client=filled).steps()
    for place in ("s3://bucket/team/a", "s3://bucket/team/a/jobs/sick", "s3://bucket/team/a/jobs"):
        assert open_trial(place, client=filled).steps() == steps
    with pytest.raises(BadInputError, match="healthy, sick"):
        open_trial("s3://bucket/deep/er", client=filled)
    assert open_trial("s3://bucket/deep/er", "sick", client=filled).name == "sick"
    with pytest.raises(NotFoundError, match="nothing is recorded"):
        open_trial("s3://bucket/team", client=filled)


def test_an_account_is_named_by_the_commands_options() -> None:
    with pytest.raises(BadInputError, match="--at aws or --at local, found 'runs'"):
        open_place("s3://bucket", Account(at="runs"))
