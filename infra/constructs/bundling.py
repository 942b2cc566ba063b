"""Turn sources into Lambda assets without Docker, once per content.

CDK skips a build whose asset lies in ``cdk.out`` already and all builds where nothing is deployed
(``cdk destroy``, ``cdk ls``), so a second synth costs only the hashing.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

ROOT = Path(__file__).parents[2]
BUILD_VERSION = 1  # raise it when the way of building changes what comes out


class BundlingError(RuntimeError):
    """A layer cannot be built on this machine; the message says what is missing."""


@jsii.implements(ILocalBundling)
class _LocalBuild:
    """Fills the asset's folder by a function of ours."""

    def __init__(self, build: Callable[[Path], None]) -> None:
        self._build = build

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        """Build into ``output_dir``; always ours, there is no fallback to a container."""
        self._build(Path(output_dir))
        return True


def asset(source: Path, build: Callable[[Path], None], *parts: str) -> lambda_.Code:
    """Return code built from ``source`` by ``build(output folder)``.

    Args:
        source: Where the sources lie; stands for the asset where building is skipped.
        build: Fills the output folder.
        parts: Everything the outcome depends on.
    """
    digest = hashlib.sha256("\0".join((str(BUILD_VERSION), *parts)).encode())
    return lambda_.Code.from_asset(
        str(source),
        asset_hash=digest.hexdigest(),
        asset_hash_type=AssetHashType.CUSTOM,
        bundling=BundlingOptions(
            image=DockerImage.from_registry("unused"), local=_LocalBuild(build)
        ),
    )


def digest(files: Iterable[Path]) -> str:
    """Hash files' names below the repository and their bytes; order does not matter."""
    total = hashlib.sha256()
    for path in sorted(files):
        body = path.read_bytes()
        total.update(f"{path.relative_to(ROOT).as_posix()}\0{len(body)}\0".encode() + body)
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
