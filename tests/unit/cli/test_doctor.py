"""Why a job is not stopped, as ``trainwarden doctor`` says it."""

from __future__ import annotations

import pytest

from trainwarden.cli.doctor import stop
from trainwarden.store.ports import TrainingJob
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
