"""Real training jobs, from the hook in their process to the stop."""

from __future__ import annotations

import re

import pytest

from tests.deployed.conftest import EMAIL, PHONE, Cloud, until
from trainwarden.model import Status
from trainwarden.store.ports import EntryKind

pytestmark = pytest.mark.deployed
# No trees, no tokens, and a loop that does not clip: nothing to look at for these.
NOT_THERE = {
    "FeatureImportanceOverweight",
    "GradientClipping",
    "TargetLeakage",
    "TokenImbalance",
    "TreeDepth",
}


def test_the_faulty_job_ends_stopped_with_the_right_verdict(started: Cloud) -> None:
    found = started.ended("faulty")
    assert found["TrainingJobStatus"] == "Stopped"
    verdict = started.verdicts("faulty")["VanishingGradient"]
    assert verdict.status is Status.ISSUES_FOUND
    assert verdict.code == "GRD001"
    assert "weight matrices" in verdict.note


def test_what_was_done_is_recorded_once_and_told_on_the_bus(started: Cloud) -> None:
    started.ended("faulty")
    until(lambda: started.told("faulty", "Action Taken"), "the stop is told")
    actions = started.entries("faulty", EntryKind.ACTION)
    stops = [entry.body for entry in actions.values() if entry.body["rule"] == "VanishingGradient"]
    assert [(body["kind"], body["outcome"]) for body in stops] == [("stop", "stopped")]


def test_the_healthy_job_beside_it_completes_with_no_issue(started: Cloud) -> None:
    assert started.ended("healthy")["TrainingJobStatus"] == "Completed"
    record = started.closed("healthy")
    assert record.outcome == "Completed"
    assert {v.status for v in started.verdicts("healthy").values()} == {Status.NO_ISSUES_FOUND}
    blind = {rule for rule, one in started.verdicts("healthy").items() if not one.evaluated}
    assert blind == NOT_THERE
    assert started.entries("healthy", EntryKind.FINDING) == {}
    assert started.entries("healthy", EntryKind.INCIDENT) == {}
    assert started.messages("healthy") == []


def test_an_unmarked_faulty_job_is_announced_and_not_stopped(started: Cloud) -> None:
    started.found_issues("unmarked", "VanishingGradient")
    mails = until(
        lambda: [m for m in started.messages("unmarked") if "VanishingGradient" in m["subject"]],
        "the mail about the unmarked job",
    )
    assert "trainwarden:stop" in mails[0]["message"]
    assert started.ended("faulty")["TrainingJobStatus"] == "Stopped"
    # The same verdict has stopped the marked one by now.
    assert started.describe("unmarked")["TrainingJobStatus"] == "InProgress"
    assert started.entries("unmarked", EntryKind.ACTION) == {}
    started.server.client("sagemaker").stop_training_job(TrainingJobName="unmarked")
    started.ended("unmarked")


def test_the_mail_says_what_where_since_when_what_to_try_and_how_to_go_on(started: Cloud) -> None:
    started.found_issues("faulty", "VanishingGradient")
    [mail] = until(
        lambda: [m for m in started.messages("faulty") if "VanishingGradient in" in m["subject"]],
        "the mail about the verdict",
    )
    verdict = started.verdicts("faulty")["VanishingGradient"]
    assert mail["to"] == EMAIL
    assert len(mail["subject"]) <= 100
    for part in (
        "VanishingGradient in faulty",
        "gradient/0.weight",
        f"step {verdict.since_step}",
        "Put residual connections",
        "trainwarden findings faulty",
        "trainwarden:mute",
    ):
        assert part in mail["message"]
    assert re.search(r"observed \d", mail["message"])


def test_the_sms_is_short_and_says_it_all(started: Cloud) -> None:
    started.found_issues("faulty", "VanishingGradient")
    [sms] = until(
        lambda: [
            m
            for m in started.messages("faulty", "sms")
            if "VanishingGradient in faulty" in m["message"]
        ],
        "the SMS about the verdict",
    )
    assert sms["to"] == PHONE
    assert len(sms["message"]) <= 140


def test_people_hear_of_the_stop(started: Cloud) -> None:
    started.ended("faulty")
    until(
        lambda: [m for m in started.messages("faulty") if "Stop" in m["subject"]],
        "the mail about the stop",
    )


def test_a_stopped_job_is_closed_with_all_it_saved(started: Cloud) -> None:
    started.ended("faulty")
    record = started.closed("faulty")
    assert record.outcome == "Stopped"
    assert started.entries("faulty", EntryKind.INCIDENT) == {}
    assert [e["detail-type"] for e in started.told("faulty")].count("Job Opened") == 1
    until(lambda: started.told("faulty", "Job Closed"), "the end is told")
