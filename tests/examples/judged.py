"""Run an example as its docstring says, then let the command line judge it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def issues(script: str, folder: Path, *arguments: str) -> set[str]:
    """Train in an empty folder; the rules that found something to warn of."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINWARDEN", "SM_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    looked = subprocess.run(
        [sys.executable, "-m", "trainwarden.cli.main", "check", ".trainwarden/runs", "--json"],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found: Any = json.loads(looked.stdout)
    told = {
        verdict["rule"] for verdict in found[0]["verdicts"] if verdict["status"] == "IssuesFound"
    }
    return told - {"FeatureImportanceOverweight"}  # told as info
