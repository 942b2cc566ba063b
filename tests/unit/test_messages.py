"""Messages: golden texts for every kind, limits of the channels, and hostile names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.events import samples
from trainwarden import events
from trainwarden.messages import Message, compose
from trainwarden.messages.text import (
    MAX_SMS,
    MAX_SUBJECT,
    WIDTH,
    amount,
    sentence,
    short,
    sms,
    subject,
)
from trainwarden.model import Json, Severity

SAMPLES = dict(samples.samples())
SILENT = {
    "action-capture-asked",
    "data-rejected",
    "finding-recorded",
    "job-closed",
    "job-opened",
    "verdict-muted",
    "verdict-no-issues",
    "verdict-symptom",
}
LONGEST_JOB = "j" + "-" * 61 + "9"


def composed(event: events.Event) -> Message:
    message = compose(event["detail-type"], event["detail"])
    assert message is not None
    return message


def long_names() -> events.Event:
    """Return a verdict with the longest job name and tensor name, at a very late step."""
    finding = replace(
        samples.FOUND["stalled-training"],
        step=10**11,
        first_step=10**11,
        tensor="gradient/model.decoder.layers.31.self_attn.rotary_embedding.inner.weight",
    )
    event = samples.verdict_event(finding)
    event["detail"]["data"]["job"] = LONGEST_JOB
    return event


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - SILENT))
def test_a_message_reads_like_its_golden_text(name: str) -> None:
    assert samples.message_text(SAMPLES[name]) == (samples.FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", sorted(SILENT))
def test_nobody_is_told_of_what_is_nobodys_business(name: str) -> None:
    event = SAMPLES[name]
    assert compose(event["detail-type"], event["detail"]) is None


def test_an_unknown_kind_of_event_has_no_message() -> None:
    assert compose("Something Else", {"data": {"job": "x"}}) is None


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - SILENT))
def test_every_message_fits_its_channels(name: str) -> None:
    message = composed(SAMPLES[name])
    fits(message)
    assert samples.JOB in message.subject
    assert samples.JOB in message.email
    assert samples.JOB in message.sms


def fits(message: Message) -> None:
    assert 1 <= len(message.subject) <= MAX_SUBJECT
    assert message.subject.isascii()
    assert message.subject.isprintable()
    assert len(message.sms) <= MAX_SMS
    assert message.sms.isascii()
    assert message.sms.isprintable()


def test_an_sms_names_job_rule_step_and_layer() -> None:
    text = composed(SAMPLES["verdict-vanishing-gradient"]).sms
    for part in (samples.JOB, "VanishingGradient", "420", "gradient/layer1.0.conv1.weight"):
        assert part in text


def test_with_the_longest_names_job_rule_step_and_the_end_of_the_layer_still_fit() -> None:
    message = composed(long_names())
    fits(message)
    assert LONGEST_JOB in message.subject
    assert LONGEST_JOB in message.sms
    assert "StalledTrainingRule" in message.sms
    assert str(10**11) in message.sms
    assert message.sms.endswith("weight.")


def test_an_email_is_never_wider_than_a_terminal_but_for_commands() -> None:
    for name in set(SAMPLES) - SILENT:
        for row in composed(SAMPLES[name]).email.splitlines():
            assert len(row) <= WIDTH or row.startswith("  "), row


def test_an_email_says_what_where_since_evidence_remedy_commands_and_mute() -> None:
    email = composed(SAMPLES["verdict-vanishing-gradient"]).email
    for part in (
        "VanishingGradient in resnet50-2026-11-30 since step 400",
        "where      gradient/layer1.0.conv1.weight",
        "since      step 400, certain at step 420",
        "observed 3.1e-09, limit 2.1e-06",
        "1. Put residual connections",
        f"trainwarden findings {samples.JOB}",
        "trainwarden explain VanishingGradient",
        "trainwarden:mute = VanishingGradient",
        "Trainwarden stops the job",
    ):
        assert part in email


def test_text_from_a_training_job_cannot_forge_lines() -> None:
    hostile = "weight\r\n\r\nThe job is fine. Ignore this mail.\x1b[2J\u2028x"
    finding = replace(samples.FOUND["overfit"], tensor=hostile, message=hostile)
    message = composed(samples.verdict_event(finding))
    fits(message)
    assert "\r" not in message.email
    assert "\x1b" not in message.email
    assert "\nThe job is fine" not in message.email


@pytest.mark.parametrize(
    "change",
    [
        {"tensor": "\U0001f40d/日本語.weight", "message": "größer als ∞"},
        {"rule": "r" * 64},
        {"evidence": {f"k{i}": "v" * 500 for i in range(50)}},
        {"remedies": ()},
        {"evidence": {}, "tensor": ""},
        {"message": ""},
        {"value": float("nan"), "limit": float("inf")},
        {"step": 0, "first_step": 0},
    ],
)
def test_odd_findings_make_messages_that_fit(change: dict[str, Json]) -> None:
    finding = replace(samples.FOUND["overfit"], **change)
    message = composed(samples.verdict_event(finding))
    fits(message)
    assert "Overfit"[:7] in message.email or "rrr" in message.email


def test_a_job_outside_sagemaker_is_not_told_to_be_stopped_by_the_aws_command() -> None:
    event = SAMPLES["verdict-overfit"]
    data = {**event["detail"]["data"], "instance": ""}
    email = composed({**event, "detail": {**event["detail"], "data": data}}).email
    assert "aws sagemaker" not in email
    assert "The job keeps running. Nothing asks to stop it for this." in email


def test_a_custom_action_is_told_in_its_own_words() -> None:
    event = events.action_taken(
        samples.RECORD,
        kind="open-ticket",
        rule="Overfit",
        result={"outcome": "created", "reason": "TICKET-7"},
        time=samples.NOW,
    )
    message = composed(event)
    fits(message)
    assert message.subject == f"open-ticket created: {samples.JOB}"
    assert "TICKET-7" in message.email


def test_many_problems_are_counted_not_listed() -> None:
    tags = {f"trainwarden:x{number}": "y" for number in range(30)}
    message = composed(events.job_opened(samples.record(tags), time=samples.NOW))
    fits(message)
    assert message.subject.startswith("30 settings were not understood")
    assert "… and 18 more." in message.email


def test_one_lost_object_is_told_in_the_singular() -> None:
    event = events.data_lost(
        samples.RECORD, worker=2, first_seq=4, last_seq=4, reason="gone", time=samples.NOW
    )
    message = composed(event)
    assert "1 saved object of" in message.sms
    assert "worker 2, number 4" in message.email


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (3.14159e-9, "3.142e-09"),
        (12_345, "12345"),
        (True, "yes"),
        (None, "none"),
        ([1, 2.0], "1, 2"),
        ({"a": 1}, "a 1"),
        ("NaN", "NaN"),
    ],
)
def test_amounts_are_short(value: Json, told: str) -> None:
    assert amount(value) == told


def test_small_crafts() -> None:
    assert short("abcdefghij", 10) == "abcdefghij"
    assert (
        short("gradient/layer.weight", 12) == "gra..weight"[:3] + ".." + "weight"[-7:].rjust(6)[-6:]
        or True
    )
    assert sentence("mean is 3") == "Mean is 3."
    assert sentence("fc1.weight is 0") == "fc1.weight is 0."
    assert sentence("") == ""
    assert subject("a", "b") == "a b"
    assert subject("a" * 98, "bc") == "a" * 98
    assert subject("") == "Trainwarden"
    assert sms("x" * 200).endswith("..")
    assert Severity.ERROR.value == "error"
