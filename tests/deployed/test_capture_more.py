"""A finding asks for detail, the control document carries it, and the hook saves denser steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployed.conftest import Cloud, until
from tests.unit.hook.recording import Recording, read
from trainwarden.model import Collection
from trainwarden.store.ports import EntryKind
from trainwarden.store.s3 import S3Objects

pytestmark = pytest.mark.deployed
JOB = "denser"
STEPS = 50


def saved_for_it(recording: Recording) -> list[int]:
    facts = Collection.CAPTURE
    return [o.step for o in recording.observations if "request" in o.scalars.get(facts, {})]


def test_a_finding_makes_the_hook_save_denser_for_a_while(cloud: Cloud) -> None:
    environ = {**os.environ, **cloud.server.environment()}
    environ["TRAINWARDEN_OUT"] = f"s3://{cloud.bucket}"
    objects = S3Objects(cloud.bucket, cloud.s3)
    script = str(Path(__file__).with_name("denser.py"))
    training = subprocess.Popen([sys.executable, script], env=environ)
    try:
        cloud.found_issues(JOB, "ExplodingTensor")
        until(lambda: cloud.told(JOB, "Action Taken"), "the request is told")
        until(lambda: saved_for_it(read(objects, JOB))[STEPS - 1 :], "the steps are saved")
    finally:
        training.terminate()
        training.wait(60)
    cloud.closed(JOB)
    recording = read(objects, JOB)
    dense = saved_for_it(recording)
    assert dense == list(range(dense[0], dense[0] + STEPS))
    assert recording.steps[-1] == dense[-1], "then it fell back to what was planned"
    (asked,) = (entry.body for entry in cloud.entries(JOB, EntryKind.ACTION).values())
    assert (asked["kind"], asked["outcome"]) == ("capture-more", "asked")
    assert cloud.messages(JOB), "the verdict itself is told"
    assert not [m for m in cloud.messages(JOB) if "detail failed" in m["subject"]]
