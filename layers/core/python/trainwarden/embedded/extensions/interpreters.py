"""Lambda: the interpreter that a function's runtime asks for, and only what AWS has in it.

MiniStack runs every function under the server's interpreter, where all that this machine has
installed could be imported. Here a function sees the standard library, boto3 (AWS's runtimes
bring it) and its own layers, so that a dependency missing from a layer shows before AWS does.
"""

from __future__ import annotations

import importlib.util
import logging
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ministack.core import lambda_runtime

from trainwarden.embedded.settings import ServerSettings

PROVIDED = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")
logger = logging.getLogger(__name__)


def own_runtime() -> str:
    """Lambda's name for the server's own Python version."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def interpreter(runtime: str, chosen: Mapping[str, str]) -> str:
    """Return the interpreter for a runtime: the one chosen, our own, or one on PATH."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    if runtime in chosen:
        return chosen[runtime]
    if runtime == own_runtime():
        return str(base)
    found = shutil.which(runtime)
    if found is None:
        logger.warning("no %s on this machine, the function runs on %s", runtime, own_runtime())
    return found or str(base)


def wrapper(folder: Path, runtime: str, chosen: Mapping[str, str]) -> Path:
    """Write the script that starts a worker of ``runtime`` without this machine's packages."""
    script = folder / runtime
    if not script.exists():
        command = f"exec {shlex.quote(interpreter(runtime, chosen))} -S"
        text = f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(folder / 'provided'))}\n"
        text += f'export PYTHONPATH\nunset PYTHONHOME VIRTUAL_ENV\n{command} "$@"\n'
        draft = script.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.rename(script)
    return script


def link_provided(folder: Path) -> None:
    """Link what AWS's Python runtimes bring along into ``folder``."""
    folder.mkdir()
    for name in PROVIDED:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        origin = origin.parent if origin.name == "__init__.py" else origin
        (folder / origin.name).symlink_to(origin)


def install(settings: ServerSettings) -> None:
    """Choose interpreters by runtime."""
    folder = Path(tempfile.mkdtemp(prefix="runtimes-"))
    link_provided(folder / "provided")
    detect = lambda_runtime._detect_runtime_binary

    def detect_binary(runtime: str) -> tuple[str, str]:
        binary, script = detect(runtime)
        if runtime.startswith("python"):
            binary = str(wrapper(folder, runtime, settings.interpreters))
        return binary, script

    lambda_runtime._detect_runtime_binary = detect_binary
