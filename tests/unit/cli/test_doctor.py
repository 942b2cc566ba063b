"""Why a job is not stopped, as ``trainwarden doctor`` says it."""

from __future__ import annotations

import pytest

from trainwarden.cli.doctor import _training, stop
from trainwarden.config import JobConfig, Problem
from trainwarden.store.ports import JobRecord, TrainingJob
from trainwarden.wire.identity import identity
from trainwarden.wire.manifest import Manifest
from trainwarden.wire.seal import seal_key, sealed

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/resnet-1"
KEY = seal_key(ARN, {"lr": "0.1"}, "n1")
OWN = identity(ARN, {"lr": "0.1"}, "n1")


def training(**tags: str) -> TrainingJob:
    named = {f"trainwarden:{name}": value for name, value in {"nonce": "n1", **tags}.items()}
    return TrainingJob("resnet-1", ARN, "InProgress", "", named, {"lr": "0.1"})


@pytest.mark.parametrize(
    ("key", "own", "result", "found"),
    [
        (KEY, OWN, "ok", "sealed by this run"),
        (b"another", OWN, "fail", "not sealed by this run"),
        (b"", OWN, "fail", "not sealed by this run"),
        (KEY, "0" * 32, "fail", "not written by this run"),
    ],
)
def test_a_marked_job_is_stopped_only_if_its_data_is_sealed(
    key: bytes, own: str, result: str, found: str
) -> None:
    manifest = Manifest("resnet-1", "run-1", own, sagemaker=True)
    body = manifest.to_bytes(sealable=True)
    body = sealed(body, key, "jobs/resnet-1/manifest.tw") if key else manifest.to_bytes()
    check = stop(training(stop="allow"), manifest, body)
    assert check.result == result
    assert found in check.found
    assert (check.do is None) is (result == "ok")


def test_a_job_without_the_tag_is_never_stopped() -> None:
    check = stop(training(), Manifest("resnet-1", "run-1", OWN), b"")
    assert (check.result, check.found) == ("ok", "this job is never stopped")


def test_what_the_deployment_understood_is_no_problem_here() -> None:
    job = training(**{"rule:HighLoss": "limit=3"})  # a rule of one's own that is deployed
    unknown = [check.result for check in _training(job.name, job, None) if check.check == "tags"]
    assert unknown == ["fail"]
    record = JobRecord(job.name, config=JobConfig(()).to_json())
    known = [check.result for check in _training(job.name, job, record) if check.check == "tags"]
    assert known == ["ok"]


def test_what_the_deployment_did_not_understand_is_told_with_the_right_word() -> None:
    problem = Problem("tag", "trainwarden:rules", "Overfitt", "the name of a rule", "Overfit")
    record = JobRecord("resnet-1", config=JobConfig((), problems=(problem,)).to_json())
    told = [c for c in _training("resnet-1", training(), record) if c.check == "tags"]
    assert [(check.result, check.do) for check in told] == [
        ("fail", "use the name of a rule; did you mean Overfit?")
    ]
