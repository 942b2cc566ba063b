"""Runs an example as its page says and once more, then lets the command line judge both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# One process for both trainings: to import a framework takes longer than to train.
TWICE = """
import json, os, runpy, sys
script = sys.argv[1]
for folder, *arguments in json.loads(sys.argv[2]):
    os.chdir(folder)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
"""
INFO = frozenset({"FeatureImportanceOverweight"})  # told as info


def train(script: str, *runs: tuple[Path, tuple[str, ...]]) -> None:
    """Run an example in empty folders, with arguments for each."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWARDEN", "SM_"))}
    asked = json.dumps([[str(folder), *arguments] for folder, arguments in runs])
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(ROOT / script), asked],
        env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def issues(told: str) -> set[str]:
    """The rules that found something to warn of, out of what ``check --json`` printed."""
    found: Any = json.loads(told)
    return {v["rule"] for v in found[0]["verdicts"] if v["status"] == "IssuesFound"} - INFO
