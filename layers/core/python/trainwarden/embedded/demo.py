"""``make demo``: a sick training job is caught and stopped, a healthy one beside it finishes.

Everything is real but the cloud: the stack that users deploy, the ``cdk`` command, two training
scripts on real data. The exit code is 0 only if all went as promised.
"""

from __future__ import annotations

import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.panel import Panel

from trainwarden.embedded import deploy, jobs, launcher, outbox
from trainwarden.embedded.launcher import Server
from trainwarden.errors import TrainwardenError
from trainwarden.model import Json

FAULTY, HEALTHY = "digits-too-deep", "digits-healthy"
RULE = "VanishingGradient"
EMAIL, PHONE = "you@example.org", "+4915112345678"
CONTEXT = {"emails": EMAIL, "sms": PHONE, "retain": "false"}
PATIENCE_S = 180.0  # the jobs take seconds on an idle machine
POLL_S = 0.25
WIDTH = 100  # where there is no terminal that has one


class Demo:
    """Tells what happens, with the seconds since the jobs were submitted."""

    def __init__(self, server: Server, app: Path, console: Console) -> None:
        self._server, self._app, self._console = server, app, console
        self._started = time.monotonic()
        self._last: dict[str, str] = {}
        self._told = 0
        self._broken: list[str] = []

    def run(self) -> bool:
        """Deploy, train and watch; True if all went as promised."""
        self._say("bold", f"An embedded AWS runs at {self._server.endpoint}. No account is needed.")
        with self._step("deploying the stack with the real cdk (the first time takes longest)"):
            deploy.Deployment(self._server, self._app, CONTEXT).deploy()
        self._submit()
        self._watch()
        self._judge()
        return not self._broken

    def _submit(self) -> None:
        self._started = time.monotonic()
        for script, name, tags, what in (
            ("train_faulty.py", FAULTY, {"trainwarden:stop": "allow"}, "ten sigmoid layers"),
            ("train_healthy.py", HEALTHY, {"trainwarden:stop": "allow"}, "three ReLU layers"),
        ):
            submission = jobs.Submission(self._app / "examples" / script, name, tags)
            jobs.submit(self._server, submission)
            shown = " ".join(f"{key}={value}" for key, value in tags.items())
            self._line(f"SageMaker job {name} is submitted: {what}, tagged {shown}")

    def _watch(self) -> None:
        """Tell every change and every message until both jobs have ended and been written of."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            statuses = {name: self._status(name) for name in (FAULTY, HEALTHY)}
            self._tell_messages()
            written = any("Stop" in str(mail["subject"]) for mail in self._mails())
            if written and all(status in jobs.ENDED for status in statuses.values()):
                return
            time.sleep(POLL_S)

    def _status(self, name: str) -> str:
        status = str(jobs.describe(self._server, name)["TrainingJobStatus"])
        if status != self._last.get(name):
            self._last[name] = status
            self._line(f"{name}: {status}", _color(status))
        return status

    def _mails(self) -> list[dict[str, Json]]:
        return [m for m in outbox.messages(self._server.state) if m["protocol"] == "email"]

    def _tell_messages(self) -> None:
        found = outbox.messages(self._server.state)
        for message in found[self._told :]:
            self._show(message)
        self._told = len(found)

    def _show(self, message: Mapping[str, Json]) -> None:
        if message["protocol"] == "sms":
            self._line(f"SMS to {message['to']}: {message['message']}", "yellow")
        elif str(message["subject"]).startswith(RULE):
            self._line(f"e-mail to {message['to']}:", "yellow")
            title = f"Subject: {message['subject']}"
            self._console.print(Panel(str(message["message"]).strip(), title=title, width=84))
        else:
            self._line(f"e-mail to {message['to']}: {message['subject']}", "yellow")

    def _judge(self) -> None:
        """Hold what happened against what was promised."""
        faulty, healthy = (jobs.describe(self._server, name) for name in (FAULTY, HEALTHY))
        mails = [str(mail["subject"]) for mail in self._mails()]
        self._console.print()
        self._check(f"{FAULTY} was stopped", faulty["TrainingJobStatus"] == "Stopped")
        self._check(f"{HEALTHY} ran to its end", healthy["TrainingJobStatus"] == "Completed")
        wrote = any(RULE in subject and FAULTY in subject for subject in mails)
        self._check(f"you were told why: {RULE}", wrote)
        self._check(f"nobody was bothered about {HEALTHY}", not any(HEALTHY in m for m in mails))
        if "TrainingEndTime" in faulty:
            seconds = (faulty["TrainingEndTime"] - faulty["TrainingStartTime"]).total_seconds()
            self._say("bold", f"The sick job cost {seconds:.0f} s instead of running to its end.")
        self._say("", "Try it with a script of yours: trainwarden local up, deploy, train, outbox.")

    def _check(self, promise: str, kept: bool) -> None:  # noqa: FBT001 - what was seen
        self._say("green" if kept else "bold red", f"{'✓' if kept else '✗'} {promise}")
        if not kept:
            self._broken.append(promise)

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        if self._console.is_terminal:
            with self._console.status(what):
                yield
        else:
            self._say("", f"{what} …")
            yield
        self._say("", f"deployed in {time.monotonic() - begun:.0f} s")

    def _line(self, text: str, style: str = "") -> None:
        self._say(style, f"{time.monotonic() - self._started:5.1f} s  {text}")

    def _say(self, style: str, text: str) -> None:
        for line in textwrap.wrap(text, 110, subsequent_indent=" " * 9) or [""]:
            self._console.print(line, style=style or None, markup=False, soft_wrap=True)


def _color(status: str) -> str:
    return {"Completed": "green", "Failed": "bold red", "Stopped": "bold yellow"}.get(
        status, "cyan"
    )


def main(up: Callable[[Path], Server] = launcher.up) -> int:
    """Run the demo in a folder of its own and leave nothing behind."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    with tempfile.TemporaryDirectory(prefix="trainwarden-demo-") as name:
        folder = Path(name)
        try:
            app = deploy.app_folder()
            kept = Demo(up(folder), app, console).run()
        except TrainwardenError as exc:
            console.print(str(exc), style="bold red", markup=False)
            kept = False
        except KeyboardInterrupt:
            kept = False
        finally:
            launcher.down(folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
