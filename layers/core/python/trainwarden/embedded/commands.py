"""``trainwarden local …``: the embedded AWS from the command line."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trainwarden.embedded import deploy, jobs, launcher, logs, outbox
from trainwarden.errors import BadInputError
from trainwarden.model import Json

OK, JOB_FAILED = 0, 1


class Output(Protocol):
    """What the command line hands to each command: see ``cli.render``."""

    as_json: bool

    def rows(self, rows: Sequence[Mapping[str, Json]], columns: Sequence[str], empty: str) -> None:
        """Print a table or a JSON list."""
        ...

    def document(self, value: Json) -> None:
        """Print one JSON document."""
        ...

    def line(self, text: str) -> None:
        """Say something to a person; silent in JSON."""
        ...


def up(args: argparse.Namespace, out: Output) -> int:
    """Start an embedded AWS for this folder."""
    server = launcher.up(Path.cwd(), launcher.Options(port=args.port))
    _tell(server, out)
    return OK


def status(_args: argparse.Namespace, out: Output) -> int:
    """Say what runs here: the server, the stack, the jobs."""
    server = launcher.find(Path.cwd())
    if server is None:
        if out.as_json:
            out.document({"running": False})
        out.line("no embedded AWS runs in this folder; start one: trainwarden local up")
        return OK
    if out.as_json:
        out.document({"running": True, **_facts(server), "jobs": jobs.summaries(server)})
        return OK
    _tell(server, out)
    for key, value in server.outputs.items():
        out.line(f"  {key}: {value}")
    if not server.outputs:
        out.line("  nothing is deployed; deploy Trainwarden: trainwarden local deploy")
    out.rows(jobs.summaries(server), ("job", "status", "secondary", "seconds"), "no jobs yet")
    return OK


def deploy_stack(args: argparse.Namespace, out: Output) -> int:
    """Deploy the stack through the real cdk command."""
    server = launcher.running(Path.cwd())
    context = pairs(args.context, "--context")
    app = Path(args.app) if args.app else deploy.app_folder()
    started = time.monotonic()
    deployment = deploy.Deployment(server, app, context, progress=out.line)
    if args.destroy:
        deployment.destroy()
        out.line("the stack is destroyed")
        return OK
    outputs = deployment.deploy()
    if out.as_json:
        out.document(outputs)
    out.line(f"deployed in {time.monotonic() - started:.0f} s")
    return OK


def train(args: argparse.Namespace, out: Output) -> int:
    """Run a training script as a SageMaker job."""
    server = launcher.running(Path.cwd())
    name = jobs.submit(
        server,
        jobs.Submission(
            script=Path(args.script),
            name=args.name or "",
            tags=pairs(args.tags, "--tags"),
            hyperparameters=pairs(args.hyperparameters, "--hyperparameters"),
            environment=pairs(args.env, "--env"),
            max_runtime_s=args.max_runtime,
        ),
    )
    if not args.wait:
        if out.as_json:
            out.document({"job": name, "status": "InProgress"})
        out.line(f"{name} is running; follow it: trainwarden local logs {name} --follow")
        return OK
    ended = jobs.follow(server, name, out.line)
    if out.as_json:
        out.document({"job": name, "status": ended["TrainingJobStatus"], **_reason(ended)})
    out.line(f"{name}: {ended['TrainingJobStatus']} {_reason(ended).get('failure', '')}".rstrip())
    return JOB_FAILED if ended["TrainingJobStatus"] == "Failed" else OK


def show_logs(args: argparse.Namespace, out: Output) -> int:
    """Show logs: of a job, of the functions, or of the server itself."""
    server = launcher.running(Path.cwd())
    if args.follow and args.job:
        jobs.follow(server, args.job, out.line)
        return OK
    found = logs.of_job(server, args.job) if args.job else logs.of_functions(server, args.function)
    shown = found[-args.lines :]
    if out.as_json:
        out.document(shown)
    for entry in shown:
        out.line(f"{entry['time']} {entry['source']}: {entry['message']}")
    if not shown:
        out.line("nothing was logged yet")
    return OK


def show_outbox(_args: argparse.Namespace, out: Output) -> int:
    """Show the e-mails and SMS that AWS would have sent."""
    found = outbox.messages(launcher.state_folder(Path.cwd()))
    if out.as_json:
        out.document(found)
    for message in found:
        out.line(f"{message['protocol']} to {message['to']}")
        if message["subject"]:
            out.line(f"Subject: {message['subject']}")
        out.line(f"\n{message['message']}\n{'-' * 72}")
    if not found:
        out.line("no messages yet")
    return OK


def down(_args: argparse.Namespace, out: Output) -> int:
    """End the embedded AWS of this folder with all its processes."""
    ended = launcher.down(Path.cwd())
    if out.as_json:
        out.document({"ended": ended})
    out.line("the embedded AWS has ended" if ended else "no embedded AWS ran in this folder")
    return OK


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Read ``key=value`` words.

    Raises:
        BadInputError: a word without an equals sign or without a key.
    """
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise BadInputError(f"{option} key=value", repr(word))
        found[key] = value
    return found


def _tell(server: launcher.Server, out: Output) -> None:
    out.line(f"the embedded AWS runs at {server.endpoint} (process {server.pid})")
    out.line("to talk to it with AWS's own tools:")
    for key, value in server.environment().items():
        out.line(f"  export {key}={shlex.quote(value)}")


def _facts(server: launcher.Server) -> dict[str, Json]:
    return {
        "endpoint": server.endpoint,
        "pid": server.pid,
        "region": server.region,
        "account": server.account,
        "state": str(server.state),
        "environment": server.environment(),
        "outputs": server.outputs,
    }


def _reason(description: Mapping[str, Json]) -> dict[str, str]:
    reason = description.get("FailureReason")
    return {"failure": reason} if reason else {}


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``local`` and its verbs to the command line."""
    text = "an AWS inside this machine: deploy to it, train on it"
    local = verbs.add_parser("local", help=text, description=text)
    inner = local.add_subparsers(title="commands", metavar="COMMAND", required=True)
    started = _add(inner, "up", up)
    started.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    deployed = _add(inner, "deploy", deploy_stack)
    _add_pairs(deployed, "--context", "-c", what="as trainwarden.emails=you@example.org")
    deployed.add_argument("--app", help="folder of app.py (default: found from here)")
    deployed.add_argument("--destroy", action="store_true", help="remove the stack instead")
    _add(inner, "status", status)
    logged = _add(inner, "logs", show_logs)
    logged.add_argument("job", nargs="?", help="a training job (default: the functions)")
    logged.add_argument("--function", default="", help="only functions with this in their name")
    logged.add_argument("--lines", type=int, default=50, help="at most so many (default 50)")
    logged.add_argument("--follow", action="store_true", help="until the job has ended")
    trained = _add(inner, "train", train)
    trained.add_argument("script", help="a training script that calls trainwarden.watch")
    trained.add_argument("--name", help="job name (default: from the script and the time)")
    for option, what in (
        ("--tags", "tags of the job, as trainwarden:stop=allow"),
        ("--hyperparameters", "given to the script as --key value"),
        ("--env", "environment variables of the script"),
    ):
        _add_pairs(trained, option, what=what)
    trained.add_argument("--max-runtime", type=int, default=86_400, help="seconds")
    trained.add_argument("--wait", action="store_true", help="show its output until it has ended")
    _add(inner, "outbox", show_outbox)
    _add(inner, "down", down)


def _add(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace, Output], int],
) -> argparse.ArgumentParser:
    text = (run.__doc__ or "").splitlines()[0]
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(run=run)
    return parser


def _add_pairs(parser: argparse.ArgumentParser, *names: str, what: str) -> None:
    """Add an option that takes several ``key=value``, and may be given several times."""
    parser.add_argument(
        *names, nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=what
    )
