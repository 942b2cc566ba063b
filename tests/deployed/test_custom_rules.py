"""Rules of the user's own, in the deployed stack: good ones are heard, bad ones harm nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.deployed.conftest import Cloud, until
from tests.deployed.recording import Recording
from trainwarden.model import Json, Status
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed

GOOD = {"rule": "LossSeen", "steps": 4}


def put(cloud: Cloud, recording: Recording, job: str, *rules: Json) -> None:
    """Put a recorded run into the bucket as one that asks for these rules."""
    manifest = replace(recording.manifest, rules=["VanishingGradient", *rules])
    for key, body in replace(recording, manifest=manifest).objects(job):
        cloud.s3.put_object(Bucket=cloud.bucket, Key=key, Body=body)


def test_a_custom_rule_fires_and_is_told(cloud: Cloud, faulty: Recording) -> None:
    put(cloud, faulty, "custom", GOOD)
    found = cloud.found_issues("custom", "LossSeen")
    assert (found.code, found.findings) == ("USR901", 1)
    assert "4 saved steps had a loss" in found.note
    cloud.closed("custom")
    [finding] = [
        entry.body
        for entry in cloud.entries("custom", EntryKind.FINDING).values()
        if entry.body["rule"] == "LossSeen"
    ]
    assert finding["step"] == found.since_step == faulty.observations[3].step
    until(
        lambda: any("LossSeen" in str(mail) for mail in cloud.messages("custom")),
        "an e-mail tells of the custom rule",
    )


def test_a_rule_of_the_predecessors_shape_fires(cloud: Cloud, faulty: Recording) -> None:
    put(cloud, faulty, "custom-old", {"rule": "LossStaysAbove", "limit": 0.0, "patience": 2})
    found = cloud.found_issues("custom-old", "LossStaysAbove")
    assert found.code == "CUS901"
    assert found.since_step == faulty.observations[1].step
    cloud.closed("custom-old")
    assert cloud.verdicts("custom-old")["LossStaysAbove"].status is Status.ISSUES_FOUND


@pytest.mark.parametrize("how", ["raise", "garbage", "loop", "hang", "die"])
def test_a_bad_one_gets_an_error_and_harms_no_other(
    cloud: Cloud, faulty: Recording, how: str
) -> None:
    job = f"custom-{how}"
    put(cloud, faulty, job, GOOD, {"rule": "Bad", "how": how})
    cloud.closed(job)
    found = cloud.verdicts(job)
    assert found["Bad"].status is Status.ERROR
    assert found["LossSeen"].status is Status.ISSUES_FOUND
    assert found["VanishingGradient"].status is Status.ISSUES_FOUND
    cloud.drained()
    assert cloud.lost_notices() == 0


def test_a_misspelt_custom_rule_gets_the_nearest(cloud: Cloud, faulty: Recording) -> None:
    put(cloud, faulty, "custom-misspelt", "LosSeen", {"rule": "Bad", "how": "rais"})
    cloud.closed("custom-misspelt")
    said = str(cloud.record("custom-misspelt").config["problems"])
    assert "LossSeen" in said
    assert "raise or garbage" in said
