"""Deploys the stack that users deploy, through the real ``cdk`` command, to the embedded AWS."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.embedded.launcher import OUTPUTS, Server
from trainwarden.embedded.toolchain import Toolchain, alone, toolchain
from trainwarden.errors import BadInputError, NotFoundError, RetryableError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

STACK = "Trainwarden"
BOOTSTRAP_STACK = "CDKToolkit"
LOG = "cdk.log"
ASSEMBLY = "cdk.out/embedded"  # in the checkout: layers are built once for all deploys
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Deployment:
    """What to deploy.

    Attributes:
        server: The embedded AWS.
        app: Folder of ``app.py``.
        context: Configuration keys without their prefix: ``{"emails": "a@example.org"}``.
        progress: Is told each line that ``cdk`` prints.
    """

    server: Server
    app: Path
    context: Mapping[str, str] = field(default_factory=dict)
    progress: Progress = lambda _line: None

    def deploy(self) -> dict[str, str]:
        """Bootstrap once, deploy, and return the stack's outputs.

        Raises:
            RetryableError: ``cdk`` failed; the message ends with what it said.
        """
        tools = toolchain()
        if not self._exists(BOOTSTRAP_STACK):
            self._bootstrap(tools)
        raw = self.server.state / "cdk-outputs.json"
        self._with_app(
            tools,
            *("deploy", STACK, "--require-approval", "never", "--progress", "events"),
            *("--outputs-file", str(raw)),
        )
        outputs: dict[str, str] = json.loads(raw.read_text("utf-8")).get(STACK, {})
        raw.unlink()
        (self.server.state / OUTPUTS).write_text(json.dumps(outputs, indent=1), "utf-8")
        return outputs

    def destroy(self) -> None:
        """Remove the stack.

        Raises:
            RetryableError: ``cdk`` failed.
        """
        self._with_app(toolchain(), "destroy", STACK, "--force", "--progress", "events")
        (self.server.state / OUTPUTS).unlink(missing_ok=True)

    def _exists(self, stack: str) -> bool:
        from botocore.exceptions import ClientError

        client: CloudFormationClient = self.server.client("cloudformation")
        try:
            found = client.describe_stacks(StackName=stack)["Stacks"]
        except ClientError:
            return False
        return any(s["StackStatus"].endswith("_COMPLETE") for s in found)

    def _bootstrap(self, tools: Toolchain) -> None:
        """Bootstrap without the app, which ``cdk`` would synthesize for nothing."""
        environment = f"aws://{self.server.account}/{self.server.region}"
        self._run(tools, self.server.state, "bootstrap", environment)

    def _with_app(self, tools: Toolchain, verb: str, *arguments: str) -> None:
        assembly = self.app / ASSEMBLY
        assembly.mkdir(parents=True, exist_ok=True)
        with alone(assembly.with_suffix(".lock")):
            self._run(
                tools,
                self.app,
                verb,
                *arguments,
                *("--app", self._app_command()),
                *("--output", str(assembly)),
                *(part for pair in self._context() for part in ("--context", pair)),
            )

    def _run(self, tools: Toolchain, folder: Path, verb: str, *arguments: str) -> None:
        said: list[str] = []
        process = subprocess.Popen(
            tools.command(verb, *arguments, "--no-notices", "--no-version-reporting", "--ci"),
            cwd=folder,
            env=self._environment(tools),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        with process, (self.server.state / LOG).open("a") as log:
            try:
                for line in process.stdout or ():
                    log.write(line)
                    said.append(line.rstrip())
                    self.progress(line.rstrip())
            except BaseException:  # Ctrl-C as well: no cdk goes on behind our back
                process.kill()
                raise
        if process.returncode != 0:
            tail = "\n".join(line for line in said[-30:] if line)
            where = self.server.state / LOG
            raise RetryableError(f"cdk {verb} failed:\n{tail}\n(all of it: {where})")

    def _app_command(self) -> str:
        """Return the synth command, under the user's own HOME: uv and pip are set up there."""
        home = shlex.quote(str(Path.home()))
        return f"HOME={home} {shlex.quote(sys.executable)} app.py"

    def _context(self) -> list[str]:
        own = {
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "architecture": architecture(),
            # More of them than processors only slow each other down.
            "evaluator_concurrency": str(max(2, os.cpu_count() or 1)),
        }
        given = {key.removeprefix("trainwarden."): value for key, value in self.context.items()}
        if given.get("custom_rules"):  # the app is synthesized in a folder of its own
            given["custom_rules"] = str(Path(given["custom_rules"]).absolute())
        return [f"trainwarden.{key}={value}" for key, value in {**own, **given}.items()]

    def _environment(self, tools: Toolchain) -> dict[str, str]:
        home = self.server.state / "cdk-home"  # cdk keeps account ids by key in its home
        home.mkdir(exist_ok=True)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_", "NODE_"))
        }
        return {
            "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(cache / "trainwarden" / "jsii"),
            **inherited,
            **self.server.environment(),
            "HOME": str(home),
            "PATH": os.pathsep.join((str(tools.node.parent), os.environ.get("PATH", ""))),
            "JSII_NODE": str(tools.node),
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "NO_COLOR": "1",
        }


def architecture() -> str:
    """Return Lambda's name for this machine's processor.

    Raises:
        BadInputError: one that Lambda does not have.
    """
    machine = platform.machine().lower()
    if machine not in _ARCHITECTURES:
        raise BadInputError("an x86_64 or arm64 processor", machine)
    return _ARCHITECTURES[machine]


def app_folder(start: Path | None = None) -> Path:
    """Return the folder of Trainwarden's ``app.py``: here, above, or this package's checkout.

    Raises:
        NotFoundError: it is not there; the wheel does not bring it.
    """
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents, *Path(__file__).parents):
        if (folder / "app.py").is_file() and (folder / "infra" / "stack.py").is_file():
            return folder
    raise NotFoundError(
        f"no app.py of Trainwarden in {here} or above: run it in a checkout of the repository"
    )
