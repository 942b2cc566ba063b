from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from trainwarden.embedded.training.joblog import GROUP, JobLog


def test_a_job_that_starts_beside_another_finds_the_log_group_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    client = boto3.client("logs", region_name="us-east-1")
    with Stubber(client) as stub:
        stub.add_client_error("create_log_group", "ResourceAlreadyExistsException")
        stub.add_response("create_log_stream", {}, {"logGroupName": GROUP, "logStreamName": "a/1"})
        log = JobLog(tmp_path / "job.log", "a/1", client)
        log(b"")
        stub.assert_no_pending_responses()
    log.close()
