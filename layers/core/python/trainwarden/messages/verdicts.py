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
SET = "SET001"
_EXPECTED_FOUND = re.compile(r"expected (?P<expected>.+?), found (?P<found>.+?)(?:; (?P<fix>.+))?")
_SURE = 0.995
MAX_EXPLAINED = 6


def changed(data: Data) -> Message | None:
    """Tell of issues and of crashed rules; every other standing is nobody's business.

    A symptom is told with its cause, and a member of a set by the set.
    """
    if data.get("status") == CRASHED:
        return _crashed(data)
    if data.get("status") != FOUND or not _is_told(data):
        return None
    return _no_data(data) if data.get("rule") == NO_DATA else _issues(data)


def _issues(data: Data) -> Message:
    job, rule, tensor = line(data.get("job")), line(data.get("rule")), line(data.get("tensor"))
    since, step = data.get("since_step", -1), data.get("step", -1)
    facts = [("where", tensor or "the job as a whole"), ("since", _since(since, step))]
    email = letter(
        wrapped(f"{rule} in {job}" + (f" since step {since}" if since >= 0 else "")),
        wrapped(sentence(data.get("message"))),
        _explained(data),
        lines(columns(facts), evidence(data), columns([("severity", _severity(data))])),
        lines("What happens now", indented(_consequence(data))),
        _remedies(data),
        _closer(job, rule, instance=line(data.get("instance")), is_set=_is_set(data)),
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


def _is_told(data: Data) -> bool:
    told = next((a for a in data.get("actions") or () if a.get("kind") == "notify"), None)
    return told is None or bool(told.get("allowed"))


def _is_set(data: Data) -> bool:
    return data.get("code") == SET


def _explained(data: Data) -> str:
    """Name the verdicts that are symptoms of this one, so that one message tells all."""
    if _is_set(data):
        return ""  # its message names its rules
    found = [f"{line(one.get('rule'))}{_from(one)}" for one in data.get("explains") or ()]
    if not found:
        return ""
    kept = found[:MAX_EXPLAINED]
    more = f" and {len(found) - len(kept)} more" if len(found) > len(kept) else ""
    return wrapped(f"This explains {', '.join(kept)}{more}.")


def _from(one: Data) -> str:
    since = one.get("since_step", -1)
    return f" since step {since}" if since >= 0 else ""


def _stop(data: Data) -> Data | None:
    return next((a for a in data.get("actions") or () if a.get("kind") == "stop"), None)


def _consequence(data: Data) -> str:
    more = " Its next steps are saved in detail." if data.get("capture_requested") else ""
    return _whether_it_runs(data) + more


def _whether_it_runs(data: Data) -> str:
    stop = _stop(data)
    on = f" on {line(data['instance'])}" if data.get("instance") else ""
    under_way = line(data.get("stopping"))
    if under_way and not (stop and stop.get("allowed")):
        return f"The job is being stopped: {under_way} asked for it. You will hear how it went."
    if stop is None:
        return f"The job keeps running{on}. Nothing asks to stop it for this."
    if stop.get("allowed"):
        return f"Trainwarden stops the job ({line(stop.get('reason'))}). You will hear how it went."
    return f"The job keeps running{on}. It is not stopped: {line(stop.get('reason'))}."


def _brief(data: Data) -> str:
    stop = _stop(data)
    stops = (stop and stop.get("allowed")) or data.get("stopping")
    return "Being stopped." if stops else "Job goes on."


def _remedies(data: Data) -> str:
    found = data.get("remedies") or ()
    return f"What to try, most likely first\n{numbered(found)}" if found else ""


def _closer(job: str, rule: str, *, instance: str = "", is_set: bool = False) -> str:
    further = f"trainwarden verdicts {job}" if is_set else f"trainwarden explain {rule}"
    look = (f"trainwarden findings {job}", further)
    if not instance:
        return commands("Look closer", *look)
    stop = f"aws sagemaker stop-training-job --training-job-name {job}"
    return commands("Look closer, or stop it yourself", *look, stop)


def _mute(rule: str) -> str:
    return commands("Not worth a message? Tag the next job", f"trainwarden:mute = {rule}")
