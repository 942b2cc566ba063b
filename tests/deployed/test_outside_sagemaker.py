"""A run that no SageMaker started: judged alike, and asked to stop through its control document."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.deployed.conftest import EXAMPLES, Cloud, until
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed


def jobs(cloud: Cloud) -> set[str]:
    return {record.job for record in cloud.ledger.jobs()}


def test_a_loop_that_allows_it_ends_on_a_verdict_and_another_goes_on(cloud: Cloud) -> None:
    before = jobs(cloud)
    command = [sys.executable, str(EXAMPLES / "train_faulty.py"), "--epochs", "10000000"]
    environ = {**os.environ, **cloud.server.environment()}
    environ["TRAINWARDEN_OUT"] = f"s3://{cloud.bucket}"
    stoppable = subprocess.Popen(
        command, env={**environ, "TRAINWARDEN_STOP": "allow"}, stdout=subprocess.DEVNULL
    )
    try:
        (job,) = until(lambda: jobs(cloud) - before, "the run is known")
        cloud.found_issues(job, "VanishingGradient")
        until(lambda: cloud.told(job, "Action Taken"), "the request is told")
        until(lambda: stoppable.poll() is not None, "the loop has ended")
        assert stoppable.returncode == 0
    finally:
        stoppable.kill()
        stoppable.wait()
    (asked,) = (entry.body for entry in cloud.entries(job, EntryKind.ACTION).values())
    assert (asked["kind"], asked["outcome"]) == ("stop", "asked")
    assert cloud.closed(job).outcome == "stopped"
