"""docs/local.md, command by command, in an empty folder as a newcomer would."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deployed.conftest import ROOT
from trainwarden.embedded import launcher

pytestmark = pytest.mark.deployed

SAID = {
    "up": "the embedded AWS runs at http://127.0.0.1:",
    "deploy": "deployed in",
    "train": "first is running",
    "watch": "verdict VanishingGradient: IssuesFound",
    "outbox": "VanishingGradient",
    "status": "first",
    "logs": "first: epoch ",  # the last lines
    "down": "the embedded AWS has ended",
}


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "local.md").read_text("utf-8")
    (block,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    trainwarden = str(Path(sys.executable).with_name("trainwarden"))
    verbs = []
    try:
        for line in block.splitlines():
            words = shlex.split(line.replace("examples/", f"{ROOT / 'examples'}/"))
            assert words[0] == "trainwarden"
            verb = words[2] if words[1] == "local" else words[1]
            done = subprocess.run(
                [trainwarden, *words[1:], *(("--app", str(ROOT)) if verb == "deploy" else ())],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=240,
                check=False,
            )
            assert done.returncode == (1 if verb == "watch" else 0), done.stdout + done.stderr
            assert SAID[verb] in done.stdout
            verbs.append(verb)
    finally:
        launcher.down(tmp_path)
    assert verbs == list(SAID)
