"""What goes to Lambda, as files: the package, each function's code, the SDK without its ballast.

Nothing here knows the CDK, so that tests and benchmarks start functions as they are deployed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LAMBDAS = ROOT / "lambdas"
PACKAGE = ROOT / "layers" / "core" / "python" / "trainwarden"
# Parts of the package that no function imports.
NOT_IN_LAMBDA = ("hook", "cli", "embedded", "plots", "report")
# The services that the functions call.
SERVICES = frozenset({"dynamodb", "events", "lambda", "s3", "sagemaker", "sns"})


CHECK_S = 60.0  # to import a folder of custom rules


class BundlingError(RuntimeError):
    """A layer cannot be built on this machine; the message says what is missing."""


def core() -> list[Path]:
    """List the files of the core layer, which lie below ``PACKAGE.parent``."""
    return sources(PACKAGE, NOT_IN_LAMBDA)


def function(package: str) -> list[Path]:
    """List the files of one function: ``lambdas/shared`` and ``lambdas/<package>`` alone."""
    return [
        LAMBDAS / "__init__.py",
        *sources(LAMBDAS / "shared"),
        *sources(LAMBDAS / package),
    ]


def custom_rules(folder: Path) -> list[Path]:
    """List the modules of a folder of custom rules; tests are left out."""
    return [path for path in sources(folder) if _is_code(path)]


def _is_code(path: Path) -> bool:
    return path.suffix == ".py" and not path.name.startswith(("test_", "conftest"))


@cache
def described(folder: Path, _digest: str) -> dict[str, Any]:
    """Return what the rules of a folder are, and what is wrong with them.

    Their modules are imported in a process of its own, where they can do no harm to this one.

    Args:
        folder: The folder.
        _digest: Of its modules, so that a change is seen.
    """
    command = [sys.executable, "-B", "-m", "trainwarden.custom.checking", str(folder)]
    with tempfile.TemporaryDirectory() as nowhere:
        done = subprocess.run(  # noqa: S603 (ours)
            command,
            cwd=nowhere,
            env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        tail = done.stderr.strip().splitlines()[-1:] or ["nothing was said"]
        return {"rules": [], "problems": [f"they cannot be checked: {tail[0]}"]}
    return found


def digest(files: Iterable[Path], base: Path = ROOT) -> str:
    """Hash files' names below ``base`` and their bytes; order does not matter."""
    total = hashlib.sha256()
    for path in sorted(files):
        body = path.read_bytes()
        total.update(f"{path.relative_to(base).as_posix()}\0{len(body)}\0".encode() + body)
    return total.hexdigest()


def sources(folder: Path, leave_out: Iterable[str] = ()) -> list[Path]:
    """List a folder's files but bytecode and the top-level parts named in ``leave_out``."""
    excluded = set(leave_out)
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and "__pycache__" not in path.parts
        and path.relative_to(folder).parts[0] not in excluded
    ]


def copy(files: Iterable[Path], base: Path, target: Path) -> None:
    """Copy files to the same places below ``target`` as they have below ``base``."""
    for path in files:
        place = target / path.relative_to(base)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def uv() -> str:
    """Return uv's executable: the one on the PATH, or the one of the PyPI package.

    Raises:
        BundlingError: neither is there.
    """
    found = shutil.which("uv")
    if found:
        return found
    try:
        from uv import find_uv_bin
    except ImportError:
        raise BundlingError("building the layers needs uv: pip install uv") from None
    return find_uv_bin()


@cache
def interpreter(python: str) -> str | None:
    """Return an interpreter of version ``python`` ("3.13") on this machine, None without one."""
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    command = [uv(), "python", "find", "--no-python-downloads", "--no-project", "--system", python]
    candidates = [
        _output(command),
        *map(str, sorted((Path.home() / ".pyenv" / "versions").glob(f"{python}.*/bin/python"))),
    ]
    ask = ["-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    return next((found for found in candidates if found and _output([found, *ask]) == python), None)


def _output(command: list[str]) -> str:
    """Return what a command prints; nothing if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (ours)
    return done.stdout.strip() if done.returncode == 0 else ""


def add_bytecode(folder: Path, python: str, *, runs_in: str) -> None:
    """Compile every module in ``folder`` for the functions' interpreter, if there is one here.

    Lambda's layers and code are read-only: without bytecode each cold start compiles everything
    it imports. *unchecked-hash* files hold no time stamps, so the same sources give the same bytes.
    """
    found = interpreter(python)
    if found is None:
        return
    command = [found, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(folder), "-p", runs_in, str(folder)], check=True)  # noqa: S603 (ours)


def slim_sdk(botocore: Path) -> None:
    """Leave in a copy of botocore what a client of one of ``SERVICES`` reads, and no prose.

    A client parses its service's model and the endpoints of all services when it is made: most of
    the 1.3 MB of S3's model are documentation, and a third of a cold start.

    Args:
        botocore: The package's folder.
    """
    data = botocore / "data"
    for folder in [path for path in data.iterdir() if path.is_dir()]:
        if folder.name not in SERVICES:
            shutil.rmtree(folder)
    for packed in data.rglob("service-2.json.gz"):
        model = json.loads(gzip.decompress(packed.read_bytes()))
        slim = _without_prose(model)
        if "clientContextParams" in model:  # botocore reads the prose of these, of S3's at least
            slim["clientContextParams"] = model["clientContextParams"]
        packed.with_suffix("").write_text(_compact(slim), "utf-8")
        packed.unlink()
    for path in data.rglob("examples-1.json"):
        path.unlink()
    endpoints = json.loads((data / "endpoints.json").read_text("utf-8"))
    for partition in endpoints["partitions"]:
        services = partition["services"]
        partition["services"] = {name: services[name] for name in sorted(SERVICES & set(services))}
    (data / "endpoints.json").write_text(_compact(endpoints), "utf-8")


def _without_prose(node: Any) -> Any:
    """Leave out documentation; a *shape* or member of that name is an object, and stays."""
    if isinstance(node, list):
        return [_without_prose(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_prose(value)
        for key, value in node.items()
        if not (key == "documentation" and isinstance(value, str))
    }


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
