"""README's section "Use it on AWS", command by command, against the embedded AWS."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployed.conftest import ROOT, Cloud
from trainwarden.embedded.toolchain import toolchain

pytestmark = pytest.mark.deployed

ROLE = "training"
TRUST = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", '
TRUST += '"Principal": {"Service": "sagemaker.amazonaws.com"}}]}'


def shown() -> list[str]:
    """Every command of the section, in order."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.partition("\n## Use it on AWS")[2].partition("\n## ")[0]
    return [
        line
        for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL)
        for line in block.splitlines()
    ]


@pytest.mark.parametrize("command", shown())
def test_every_command_of_the_readme_works(started: Cloud, folder: Path, command: str) -> None:
    started.found_issues("faulty", "VanishingGradient")
    words = shlex.split(command.replace("YOUR_JOB", "faulty"))
    if words[0] == "trainwarden":
        done = subprocess.run(
            [str(Path(sys.executable).with_name("trainwarden")), *words[1:]],
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        assert done.returncode == (1 if words[1] == "watch" else 0), done.stdout
        assert done.stdout.strip()
    elif words[:3] == ["npx", "--yes", "aws-cdk@2"]:
        _cdk(words[3:], folder)
    elif words[:2] == ["pip", "wheel"]:
        words = [str(folder / "dist") if word == "dist" else word for word in words[1:]]
        subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True, cwd=ROOT)
        (wheel,) = (folder / "dist").iterdir()
        assert f"./{wheel.name}" in (ROOT / "README.md").read_text("utf-8")
    elif words[0] == "aws":
        _aws(started, words[1:])
    else:
        pytest.fail(f"nobody has tried {command}")


def _cdk(words: list[str], folder: Path) -> None:
    """Bootstrap, deploy and destroy are other tests' business; here their options are read."""
    verb, *options = words
    assert verb in {"bootstrap", "deploy", "destroy"}
    if not options:
        return  # each synth takes seconds
    app = f"{shlex.quote(sys.executable)} app.py"
    tools = toolchain()
    # ``ls`` runs the app with the options as any other verb does, but builds no layers.
    command = tools.command("ls", *options, "--app", app, "--output", str(folder / "shown"))
    environment = {**os.environ, "JSII_NODE": str(tools.node)}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, timeout=120)


def _aws(cloud: Cloud, words: list[str]) -> None:
    """Call what a command line of the AWS CLI would call, with the same parameters."""
    service, operation, *options = words
    values = {"YOUR_TRAINING_ROLE": ROLE}
    values["THE_TRAINING_POLICY_ARN"] = cloud.outputs["TrainingPolicyArn"]
    names = [name.removeprefix("--").title().replace("-", "") for name in options[::2]]
    given = dict(zip(names, (values.get(value, value) for value in options[1::2]), strict=True))
    iam = cloud.server.client("iam")
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=TRUST)
    getattr(cloud.server.client(service), operation.replace("-", "_"))(**given)
    attached = iam.list_attached_role_policies(RoleName=ROLE)["AttachedPolicies"]
    assert [policy["PolicyArn"] for policy in attached] == [values["THE_TRAINING_POLICY_ARN"]]
