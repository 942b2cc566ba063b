"""What happens to a job besides verdicts, told to a person."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden.messages.text import (
    Data,
    Message,
    amount,
    columns,
    commands,
    letter,
    line,
    sentence,
    short,
    sms,
    subject,
    wrapped,
)

_MOST_PROBLEMS = 12
# outcome → (what the subject and the first line say, what it means for the reader)
_STOP: Mapping[str, tuple[str, str]] = {
    "stopped": (
        "{job} is being stopped because of {rule}",
        "SageMaker sends SIGTERM and gives the script 120 seconds to save a checkpoint.",
    ),
    "asked": (
        "{job} is asked to stop because of {rule}",
        "It ends after the step it is making, once the script has saved a checkpoint.",
    ),
    "refused": ("{job} was not stopped", "{rule} asked for it. If the job still runs, it goes on."),
    "dry_run": (
        "Dry run: {job} would have been stopped because of {rule}",
        "This deployment announces but stops nothing; deploy with dry_run=false to change that.",
    ),
    "failed": (
        "{job} could not be stopped",
        "{rule} asked for it and the job allows it. It may still run, and cost: look at it now.",
    ),
}
_STOP_SMS = {
    "stopped": "is being stopped",
    "asked": "is asked to stop",
    "refused": "was not stopped",
    "dry_run": "would have been stopped (dry run)",
    "failed": "could NOT be stopped, look now",
}


def action_taken(data: Data) -> Message:
    """Tell what came of an action."""
    job, rule, kind = line(data.get("job")), line(data.get("rule")), line(data.get("kind"))
    outcome = line(data.get("outcome"))
    if kind != "stop" or outcome not in _STOP:
        what = "capture in detail" if kind == "capture-more" else kind
        return _other_action(job, rule, f"{what} {outcome}", line(data.get("reason")))
    title, meaning = (text.format(job=job, rule=rule) for text in _STOP[outcome])
    by_hand = f"aws sagemaker stop-training-job --training-job-name {job}"
    email = letter(
        wrapped(title),
        columns(
            [
                ("job", job),
                ("rule", rule),
                ("why", sentence(data.get("reason"))),
                ("instance", line(data.get("instance"))),
            ]
        ),
        wrapped(meaning),
        commands(
            "Look closer",
            f"trainwarden findings {job}",
            f"aws sagemaker describe-training-job --training-job-name {job}",
            by_hand if outcome not in {"stopped", "asked"} else "",
        ),
        commands("Jobs are stopped only with this tag", "trainwarden:stop = allow"),
    )
    heads = dict.fromkeys(("stopped", "asked"), "Stopping")
    heads |= {"refused": "Not stopped:", "dry_run": "Dry run, not stopped:"}
    return Message(
        subject(f"{heads.get(outcome, 'Could not stop')} {job}", f"({short(rule, 24)})"),
        email,
        sms(f"Trainwarden: {job} {_STOP_SMS[outcome]}, rule {short(rule, 24)}"),
    )


def _other_action(job: str, rule: str, what: str, reason: str) -> Message:
    email = letter(
        wrapped(f"{sentence(what)[:-1]}: {job}"),
        columns([("job", job), ("rule", rule), ("why", sentence(reason))]),
        commands("Look closer", f"trainwarden findings {job}"),
    )
    text = f"Trainwarden: {short(what, 24)}, {job}, rule {short(rule, 24)}"
    return Message(subject(f"{short(what, 24)}: {job}"), email, sms(text))


def data_lost(data: Data) -> Message:
    """Tell that saved steps never arrived, so that the rules judged without them."""
    job, worker = line(data.get("job")), data.get("worker", 0)
    count, first, last = (data.get(key, 0) for key in ("objects", "first_seq", "last_seq"))
    objects = "1 saved object" if count == 1 else f"{amount(count)} saved objects"
    numbers = f"number {first}" if count == 1 else f"numbers {first} to {last}"
    email = letter(
        wrapped(f"{sentence(objects)[:-1]} of {job} never arrived"),
        columns(
            [
                ("job", job),
                ("where", f"worker {worker}, {numbers}"),
                ("why", sentence(data.get("reason"))),
            ]
        ),
        wrapped(
            "The rules judged without these steps: a fault that shows only in them is not seen. "
            "Everything that came later is judged as always."
        ),
        commands(
            "What to try",
            "Search the job's log for trainwarden and upload: the hook says why it failed.",
            "If the process was killed hard, the last seconds are lost; SIGTERM loses nothing.",
        ),
        commands("Look closer", f"trainwarden verdicts {job}", "trainwarden doctor"),
    )
    return Message(
        subject(f"Data lost from {job}"),
        email,
        sms(f"Trainwarden: {objects} of {job} never arrived (worker {worker})"),
    )


def opened(data: Data) -> Message | None:
    """Tell whoever started the job which of its settings were not understood."""
    problems = data.get("problems") or ()
    if not problems:
        return None
    job, count = line(data.get("job")), int(data.get("problem_count", len(problems)))
    were = "1 setting was" if count == 1 else f"{amount(count)} settings were"
    told = "\n\n".join(_problem(problem) for problem in problems[:_MOST_PROBLEMS])
    rest = count - min(len(problems), _MOST_PROBLEMS)
    stop = "may be stopped" if data.get("stop") else "is never stopped"
    email = letter(
        wrapped(f"{were} not understood in {job}"),
        f"{'It has' if count == 1 else 'They have'} no effect; everything else has.",
        told,
        f"… and {rest} more." if rest > 0 else "",
        wrapped(f"The job is watched by {', '.join(map(line, data.get('rules') or ['no rule']))}."),
        wrapped(f"It {stop} by trainwarden."),
        commands("Look closer", f"trainwarden verdicts {job}", "trainwarden rules"),
    )
    return Message(
        subject(f"{were} not understood in {job}"),
        email,
        sms(f"Trainwarden: {were} not understood in {job}", tail="Details by e-mail."),
    )


def _problem(problem: Data) -> str:
    return columns(
        [
            (line(problem.get("source"))[:10], line(problem.get("key"))),
            ("found", line(problem.get("found"))),
            ("expected", line(problem.get("expected"))),
            ("nearest", line(problem.get("nearest"))),
        ]
    )
