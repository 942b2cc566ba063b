"""A rule's verdict, told to a person."""

from __future__ import annotations

import re

from trainwarden.messages.text import (
    Data,
    Message,
    columns,
    commands,
    evidence,
    indented,
    letter,
    line,
    lines,
    numbered,
    sentence,
    short,
    sms,
    subject,
    wrapped,
)

CRASHED = "Error"
FOUND = "IssuesFound"
NO_DATA = "NoData"
_EXPECTED_FOUND = re.compile(r"expected (?P<expected>.+?), found (?P<found>.+?)(?:; (?P<fix>.+))?")
_SURE = 0.995


def changed(data: Data) -> Message | None:
    """Tell of issues and of crashed rules; every other standing is nobody's business."""
    if data.get("status") == CRASHED:
        return _crashed(data)
    if data.get("status") != FOUND:
        return None
    return _no_data(data) if data.get("rule") == NO_DATA else _issues(data)


def _issues(data: Data) -> Message:
    job, rule, tensor = line(data.get("job")), line(data.get("rule")), line(data.get("tensor"))
    since, step = data.get("since_step", -1), data.get("step", -1)
    facts = [("where", tensor or "the job as a whole"), ("since", _since(since, step))]
    email = letter(
        wrapped(f"{rule} in {job}" + (f" since step {since}" if since >= 0 else "")),
        wrapped(sentence(data.get("message"))),
        lines(columns(facts), evidence(data), columns([("severity", _severity(data))])),
        lines("What happens now", indented(_consequence(data))),
        _remedies(data),
        _closer(job, rule, instance=line(data.get("instance"))),
        _mute(rule),
    )
    at = f", step {step}" if step >= 0 else ""
    return Message(
        subject(f"{short(rule, 24)} in {job}", f"since step {since}" if since >= 0 else ""),
        email,
        sms(f"Trainwarden: {short(rule, 24)} in {job}{at}", tensor, _brief(data)),
    )


def _crashed(data: Data) -> Message:
    job, rule, step = line(data.get("job")), line(data.get("rule")), data.get("step", -1)
    at = f" at step {step}" if step >= 0 else ""
    email = letter(
        wrapped(f"The rule {rule} crashed in {job}{at}"),
        wrapped(sentence(data.get("message") or data.get("note"))),
        wrapped(
            "This says nothing about the job: the rule itself is at fault. It is not called again "
            "for this job; all other rules go on."
        ),
        _remedies(data),
        _closer(job, rule),
        _mute(rule),
    )
    return Message(
        subject(f"Rule {short(rule, 24)} crashed in {job}"),
        email,
        sms(
            f"Trainwarden: rule {short(rule, 24)} crashed in {job}" + at.replace(" at", ","),
            tail="Other rules go on.",
        ),
    )


def _no_data(data: Data) -> Message:
    job, told = line(data.get("job")), line(data.get("message"))
    parts = _EXPECTED_FOUND.fullmatch(told)
    email = letter(
        wrapped(f"No data came from {job}: nothing could be judged"),
        columns((label, text or "") for label, text in parts.groupdict().items())
        if parts
        else wrapped(sentence(told)),
        _remedies(data),
        commands("Look closer", "trainwarden doctor", f"trainwarden verdicts {job}"),
        _mute(NO_DATA),
    )
    return Message(
        subject(f"No data from {job}"),
        email,
        sms(f"Trainwarden: NoData in {job}, no step came", tail="Nothing was judged."),
    )


def _since(since: int, step: int) -> str:
    if since < 0:
        return ""
    found = f"step {since}"
    return found + (f", certain at step {step}" if step > since else "")


def _severity(data: Data) -> str:
    confidence = data.get("confidence", 1.0)
    sure = "" if confidence >= _SURE else f", {round(100 * confidence)} % sure"
    return f"{line(data.get('severity'))} ({line(data.get('code'))}{sure})"


def _stop(data: Data) -> Data | None:
    return next((a for a in data.get("actions") or () if a.get("kind") == "stop"), None)


def _consequence(data: Data) -> str:
    stop = _stop(data)
    on = f" on {line(data['instance'])}" if data.get("instance") else ""
    if stop is None:
        return f"The job keeps running{on}. Nothing asks to stop it for this."
    if stop.get("allowed"):
        return f"Trainwarden stops the job ({line(stop.get('reason'))}). You will hear how it went."
    return f"The job keeps running{on}. It is not stopped: {line(stop.get('reason'))}."


def _brief(data: Data) -> str:
    stop = _stop(data)
    return "Being stopped." if stop and stop.get("allowed") else "Job goes on."


def _remedies(data: Data) -> str:
    found = data.get("remedies") or ()
    return f"What to try, most likely first\n{numbered(found)}" if found else ""


def _closer(job: str, rule: str, *, instance: str = "") -> str:
    look = (f"trainwarden findings {job}", f"trainwarden explain {rule}")
    if not instance:
        return commands("Look closer", *look)
    stop = f"aws sagemaker stop-training-job --training-job-name {job}"
    return commands("Look closer, or stop it yourself", *look, stop)


def _mute(rule: str) -> str:
    return commands("Not worth a message? Tag the next job", f"trainwarden:mute = {rule}")
