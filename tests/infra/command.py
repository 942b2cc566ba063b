"""The real ``cdk`` command, where there are neither credentials nor Docker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.embedded.deploy import architecture
from trainwarden.embedded.toolchain import toolchain

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
NOWHERE = "/nonexistent"


@dataclass(frozen=True)
class Assembly:
    """A folder that ``cdk synth`` filled, and what it said."""

    folder: Path
    said: str

    @property
    def template(self) -> dict[str, Any]:
        """The template that would be deployed."""
        found: dict[str, Any] = json.loads((self.folder / "Trainwarden.template.json").read_text())
        return found

    def assets(self, kind: str) -> dict[str, Path]:
        """Return the folders of assets of a resource type: logical id → folder."""
        return {
            id_: self.folder / resource["Metadata"]["aws:asset:path"]
            for id_, resource in self.template["Resources"].items()
            if resource["Type"] == kind
        }


class Command:
    """Runs ``cdk`` as a user does, in the repository, into a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tools = toolchain()

    def synth(self, **values: str) -> Assembly:
        """Return what was synthesized for this machine's Python."""
        done = self.run(
            "synth", "--quiet", **{"python": PYTHON, "architecture": architecture()} | values
        )
        assert done.returncode == 0, done.stdout
        return Assembly(self._folder / "cdk.out", done.stdout)

    def run(self, *arguments: str, **values: str) -> subprocess.CompletedProcess[str]:
        """Run ``cdk`` with ``-c trainwarden.<key>=<value>``; both outputs in ``stdout``."""
        context = [part for k, v in values.items() for part in ("-c", f"trainwarden.{k}={v}")]
        command = self._tools.command(
            *arguments,
            *("--app", f"{sys.executable} app.py", "--output", str(self._folder / "cdk.out")),
            *("--no-notices", "--no-version-reporting", *context),
        )
        return subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )

    def _environment(self) -> dict[str, str]:
        """Keep what finds Python packages; whoever asks for Docker or credentials must fail."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_", "DOCKER"))}
        return {
            **kept,
            "PATH": os.pathsep.join((str(self._tools.node.parent), os.environ["PATH"])),
            "JSII_NODE": str(self._tools.node),
            "CDK_DOCKER": f"{NOWHERE}/docker",
            "DOCKER_HOST": f"unix://{NOWHERE}/docker.sock",
            "AWS_CONFIG_FILE": f"{NOWHERE}/config",
            "AWS_SHARED_CREDENTIALS_FILE": f"{NOWHERE}/credentials",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
