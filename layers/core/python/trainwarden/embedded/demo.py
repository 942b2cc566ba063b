"""``make demo``: a sick training job is caught and stopped, a healthy one beside it finishes.

Everything is real but the cloud: the stack that users deploy, the ``cdk`` command, two training
scripts on real data. The exit code is 0 only if all went as promised.
"""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from trainwarden.embedded import deploy, jobs, launcher, outbox
from trainwarden.embedded.launcher import Server
from trainwarden.errors import RetryableError, TrainwardenError
from trainwarden.model import Json, Status
from trainwarden.pipeline import verdicts
from trainwarden.store.dynamo import DynamoLedger

SICK, HEALTHY = "sick", "healthy"
SCRIPTS = {SICK: "train_faulty.py", HEALTHY: "train_healthy.py"}
TAGS = {SICK: {"trainwarden:stop": "allow"}, HEALTHY: {"trainwarden:rules": "default"}}
RULE = "VanishingGradient"
EMAIL, PHONE = "ada@example.org", "+4915112345678"
CONTEXT = {"emails": EMAIL, "sms": PHONE, "retain": "false"}
PATIENCE_S = 180.0  # the jobs take seconds on an idle machine
POLL_S = 0.25
WIDTH = 100
_TIMES = re.compile(r"(Synthesis|Deployment|Total) time: .*")
_RESOURCES = re.compile(r"Trainwarden \| +(\d+)/(\d+) \|.*COMPLETE")


class Progress:
    """Tells of a deployment what a person wants to know of it."""

    def __init__(self, console: Console) -> None:
        self._console, self._tenth = console, -1

    def __call__(self, line: str) -> None:
        """Take a line that ``cdk`` printed."""
        times, resources = _TIMES.search(line), _RESOURCES.match(line)
        if times:
            self._say(times[0])
        elif resources:
            done, total = int(resources[1]), int(resources[2])
            if 10 * done // total > self._tenth:
                self._tenth = 10 * done // total
                self._say(f"{done} of {total} resources")

    def _say(self, text: str) -> None:
        self._console.print(f"   {text}", style="dim", markup=False)


class Watch:
    """Tells what happens to the jobs, with the seconds since they were submitted."""

    def __init__(self, server: Server, outputs: Mapping[str, str], console: Console) -> None:
        self._server, self._console = server, console
        self._ledger = DynamoLedger(outputs["TableName"], server.client("dynamodb"))
        self._started = time.monotonic()
        self._status: dict[str, str] = {}
        self._found: set[tuple[str, str]] = set()
        self._told = 0

    def run(self) -> None:
        """Watch until both jobs have ended and the stop was written of, or patience is over."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for job in SCRIPTS:
                self._look(job)
            self._read()
            stopped = any(f"Stopping {SICK}" in subject for subject in self.subjects())
            if stopped and all(status in jobs.ENDED for status in self._status.values()):
                return
            time.sleep(POLL_S)

    def broken(self) -> list[str]:
        """Return the promises that were not kept."""
        subjects = self.subjects()
        kept = {
            f"{SICK} was to be stopped": self._status.get(SICK) == "Stopped",
            f"{HEALTHY} was to run to its end": self._status.get(HEALTHY) == "Completed",
            f"{RULE} was to be found in {SICK}": (SICK, RULE) in self._found,
            f"nothing was to be found in {HEALTHY}": HEALTHY not in {job for job, _ in self._found},
            "an e-mail was to say why": any(f"{RULE} in {SICK}" in s for s in subjects),
            f"nobody was to be bothered about {HEALTHY}": not any(HEALTHY in s for s in subjects),
        }
        return [promise for promise, is_kept in kept.items() if not is_kept]

    def subjects(self) -> list[str]:
        """Return the subjects of the e-mails so far."""
        sent = outbox.messages(self._server.state)
        return [str(mail["subject"]) for mail in sent if mail["protocol"] == "email"]

    def _look(self, job: str) -> None:
        record = self._ledger.load(job)
        for verdict in verdicts(record) if record else ():
            if verdict.status is Status.ISSUES_FOUND and (job, verdict.rule) not in self._found:
                self._found.add((job, verdict.rule))
                text = f"{verdict.rule} since step {verdict.since_step}: {verdict.note}"
                self._say(job, text, "bold red")
        status = str(jobs.describe(self._server, job)["TrainingJobStatus"])
        if status != self._status.get(job):
            self._status[job] = status
            self._say(job, f"SageMaker says {status}", "green" if status == "Completed" else "cyan")

    def _read(self) -> None:
        """Tell the messages that came since."""
        sent = outbox.messages(self._server.state)
        for message in sent[self._told :]:
            job = str(message["attributes"].get("job", ""))
            if message["protocol"] == "sms":
                self._say(job, f"SMS to {message['to']}: {message['message']}", "yellow")
            elif RULE in str(message["subject"]) or f"Stopping {SICK}" in str(message["subject"]):
                self._say(job, f"e-mail to {message['to']}:", "yellow")
                self._quote(message)
            else:
                self._say(job, f"e-mail to {message['to']}: {message['subject']}", "yellow")
        self._told = len(sent)

    def _quote(self, message: Mapping[str, Json]) -> None:
        for line in (f"Subject: {message['subject']}", "", *message["message"].splitlines()):
            self._console.print(f"      | {line}".rstrip(), markup=False, soft_wrap=True)

    def _say(self, job: str, text: str, style: str) -> None:
        head = f"{time.monotonic() - self._started:5.1f} s  {job:<8} "
        lines = textwrap.wrap(text, max(40, self._console.width - len(head)))
        for number, line in enumerate(lines):
            start = " " * len(head) if number else head
            self._console.print(start + line, style=style, markup=False, soft_wrap=True)


def show(folder: Path, console: Console) -> list[str]:
    """Start, deploy, train and watch; return the promises that were not kept."""
    app = deploy.app_folder()
    _title(console, "1. starting an embedded AWS on this machine")
    server = launcher.up(folder)
    console.print(f"   it listens at {server.endpoint}")
    _title(
        console, "2. deploying the stack with the real cdk command (the first time takes longer)"
    )
    outputs = deploy.Deployment(server, app, CONTEXT, Progress(console)).deploy()
    _title(
        console,
        "3. training two models as SageMaker jobs; the sick one is tagged trainwarden:stop=allow",
    )
    watch = Watch(server, outputs, console)
    for job, script in SCRIPTS.items():
        jobs.submit(server, jobs.Submission(app / "examples" / script, job, TAGS[job]))
    watch.run()
    return watch.broken()


def _title(console: Console, text: str) -> None:
    console.print(text, style="bold", markup=False, soft_wrap=True)


def main() -> int:
    """Run the demo in a folder of its own and leave nothing behind."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    with tempfile.TemporaryDirectory(prefix="trainwarden-demo-") as name:
        try:
            broken = show(Path(name), console)
        except (TrainwardenError, KeyboardInterrupt) as exc:
            broken = [str(exc) or "interrupted"]
        finally:
            try:
                launcher.down(Path(name))
            except RetryableError as exc:
                console.print(str(exc), style="bold red", markup=False)
    for promise in broken:
        console.print(f"✗ {promise}", style="bold red", markup=False, soft_wrap=True)
    if not broken:
        text = "the sick job was caught and stopped, the healthy one ran to its end untouched"
        console.print(text, style="bold green")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
