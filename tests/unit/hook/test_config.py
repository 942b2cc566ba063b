"""What the arguments and the environment say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwarden.hook.config import Place, discover, environment
from trainwarden.hook.options import Options, options
from trainwarden.hook.schedule import Schedule
from trainwarden.wire.identity import identity
from trainwarden.wire.keys import job_name

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/resnet-1"


@pytest.fixture
def problems() -> list[str]:
    return []


def find(
    problems: list[str],
    environ: dict[str, str] | None = None,
    job: str | None = None,
    out: str | Path | None = None,
) -> Place:
    given = {"SAGEMAKER_BASE_DIR": "/nowhere", **(environ or {})}
    return discover(job, out, report=problems.append, environ=given)


def sagemaker(tmp_path: Path, **files: object) -> dict[str, str]:
    """Environment of a SageMaker container with these files below input/config."""
    folder = tmp_path / "input" / "config"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return {
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        "TRAINING_JOB_NAME": "resnet-1",
        "TRAINING_JOB_ARN": ARN,
    }


def test_on_sagemaker_the_job_its_identity_and_its_hyperparameters_are_found(
    tmp_path: Path, problems: list[str]
) -> None:
    environ = sagemaker(tmp_path, hyperparameters={"lr": "0.1", "epochs": "3"})
    place = find(problems, {**environ, "TRAINWARDEN_NONCE": "n1"})
    assert (place.job, place.sagemaker, place.out) == ("resnet-1", True, "")
    assert place.identity == identity(ARN, {"lr": "0.1", "epochs": "3"}, "n1")
    assert place.hyperparameters == {"lr": "0.1", "epochs": "3"}
    assert problems == []


def test_the_destination_is_the_argument_then_the_variable_then_the_hyperparameter(
    tmp_path: Path, problems: list[str]
) -> None:
    environ = sagemaker(tmp_path, hyperparameters={"trainwarden_out": '"s3://from-hyperparameter"'})
    assert find(problems, environ).out == "s3://from-hyperparameter"
    environ["TRAINWARDEN_OUT"] = "s3://from-variable"
    assert find(problems, environ).out == "s3://from-variable"
    assert find(problems, environ, out="s3://from-argument").out == "s3://from-argument"


def test_debuggers_output_path_is_only_the_last_resort(tmp_path: Path, problems: list[str]) -> None:
    environ = sagemaker(tmp_path, debughookconfig={"S3OutputPath": "s3://sagemaker-default/debug"})
    place = find(problems, environ)
    assert (place.out, place.fallback) == ("", "s3://sagemaker-default")


def test_elsewhere_it_records_to_a_folder_under_a_name_of_its_own(problems: list[str]) -> None:
    first, second = find(problems), find(problems)
    assert first.out == ".trainwarden/runs"
    assert not first.sagemaker
    assert job_name(first.job) != job_name(second.job)


def test_a_path_behind_the_bucket_is_said_to_be_ignored(problems: list[str]) -> None:
    assert find(problems, out="s3://bucket-1/some/path").out == "s3://bucket-1"
    assert "below jobs/ of the bucket" in problems[0]


@pytest.mark.parametrize("out", ["s3://", "gs://bucket", "s3://UPPER/x", "s3://-b-/"])
def test_a_destination_nobody_can_write_to_is_named(out: str, problems: list[str]) -> None:
    assert find(problems, out=out).out == ""
    assert repr(out) in problems[0]


def test_a_folder_may_be_a_path(tmp_path: Path, problems: list[str]) -> None:
    assert find(problems, out=tmp_path).out == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "used"),
    [("my job/1", "my-job-1"), ("../../etc", "etc"), ("é", "job"), ("x" * 80, "x" * 63)],
)
def test_a_job_name_outside_the_grammar_is_replaced_and_said(
    name: str, used: str, problems: list[str]
) -> None:
    assert find(problems, job=name).job == used
    assert f"{used!r} is used" in problems[0]


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "nonsense"}, (0, 1)),
    ],
)
def test_the_rank_comes_from_the_launcher(
    environ: dict[str, str], rank: tuple[int, int], problems: list[str]
) -> None:
    place = find(problems, environ)
    assert (place.worker, place.world_size) == rank


def test_without_a_launcher_the_rank_is_the_hosts(tmp_path: Path, problems: list[str]) -> None:
    resources = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}
    place = find(problems, sagemaker(tmp_path, resourceconfig=resources))
    assert (place.worker, place.world_size) == (1, 2)


def test_damaged_sagemaker_files_count_as_missing(tmp_path: Path, problems: list[str]) -> None:
    environ = sagemaker(tmp_path)
    (tmp_path / "input/config/hyperparameters.json").write_text("{")
    (tmp_path / "input/config/resourceconfig.json").write_text("[1]")
    assert find(problems, environ).job == "resnet-1"


def test_arguments_left_out_have_their_defaults(problems: list[str]) -> None:
    assert options({"save_interval": None, "strict": False}, report=problems.append) == Options()
    assert problems == []


def test_arguments_given_are_taken(problems: list[str]) -> None:
    found = options(
        {
            "save_interval": 5,
            "dense_steps": 0,
            "collections": ["losses", "gradients"],
            "include": "^fc",
            "exclude": ["bias$"],
            "rules": ["Overfit"],
        },
        report=problems.append,
    )
    assert found.schedule == Schedule(interval=5, dense=0)
    assert found.wants("gradients", "fc1.weight")
    assert not found.wants("gradients", "conv.weight")
    assert not found.wants("gradients", "fc1.bias")
    assert not found.wants("weights", "fc1.weight")
    assert found.rules == ["Overfit"]
    assert problems == []


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("collections", ["gradient"], "did you mean 'gradients'"),
        ("include", "(", "regular expression"),
        ("activation_modules", 3, "regular expression"),
        ("rules", {"x": float("nan")}, "rules"),
        ("rules", object(), "rules"),
        ("close_timeout_s", -1, "at least 0"),
        ("max_pending_bytes", "1 MB", "at least 0"),
        ("save_interval", 0, "save_interval"),
    ],
)
def test_a_wrong_argument_is_named_and_its_default_used(
    argument: str, value: object, said: str, problems: list[str]
) -> None:
    assert options({argument: value}, report=problems.append) == Options()
    assert len(problems) == 1
    assert said in problems[0]


def test_the_manifest_tells_versions_and_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: list[str]
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / ".git" / "refs").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/main\n")
    (tmp_path / ".git" / "refs" / "main").write_text("0123abcd\n")
    monkeypatch.chdir(inside)
    found = environment({"torch": "2"}, find(problems))
    assert (found["commit"], found["torch"]) == ("0123abcd", "2")
    json.dumps(found)
