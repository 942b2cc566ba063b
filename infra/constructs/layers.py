"""The two layers every function gets: locked third-party wheels, and our own package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from aws_cdk import Annotations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import packing
from infra.config import Config
from infra.constructs import bundling

REQUIREMENTS = packing.ROOT / "layers" / "deps" / "requirements.txt"
PLATFORMS = {"arm64": "aarch64-manylinux_2_28", "x86_64": "x86_64-manylinux_2_28"}
# Never imported at run time: half of numpy's size.
TRIMMED_FOLDERS = ("tests", "f2py", "doc", "include", "_pyinstaller", "bin")
TRIMMED_SUFFIXES = (".pyi", ".pxd", ".h", ".c", ".a", ".lib")


class Layers(Construct):
    """``deps`` (numpy, botocore, Powertools) changes rarely; ``core`` changes with every rule."""

    def __init__(self, scope: Construct, id_: str, *, config: Config) -> None:
        super().__init__(scope, id_)
        self._config = config
        compiled = packing.interpreter(config.python) is not None
        if not compiled:
            Annotations.of(self).add_warning_v2(
                "trainwarden:no-bytecode",
                f"There is no Python {config.python} on this machine to compile the layers: each "
                "cold start will compile them and take about four times as long. Install it, or "
                "set trainwarden.python to a version that is here.",
            )
        about = (config.python, config.architecture, f"bytecode={compiled}")
        deps = bundling.asset(
            REQUIREMENTS.parent,
            self.build_deps,
            *about,
            packing.digest([REQUIREMENTS]),
        )
        core = bundling.asset(
            packing.PACKAGE.parents[1], self._build_core, *about, packing.digest(packing.core())
        )
        self.all = [self._layer("Deps", deps), self._layer("Core", core)]

    def _layer(self, id_: str, code: lambda_.Code) -> lambda_.LayerVersion:
        runtime, architecture = runtime_of(self._config)
        return lambda_.LayerVersion(
            self,
            id_,
            code=code,
            compatible_runtimes=[runtime],
            compatible_architectures=[architecture],
        )

    def build_deps(self, output: Path) -> None:
        """Unpack the locked wheels for Lambda's platform, trimmed."""
        target = output / "python"
        command = [packing.uv(), "pip", "install", "--quiet", "--no-python-downloads"]
        command += ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        command += ["--python-platform", PLATFORMS[self._config.architecture]]
        command += ["--python-version", self._config.python, "--link-mode", "copy"]
        command += ["--target", str(target), "--requirements", str(REQUIREMENTS)]
        subprocess.run(command, check=True)  # noqa: S603 (our own command)
        trim(target)
        packing.slim_sdk(target / "botocore")
        packing.add_bytecode(target, self._config.python, runs_in="/opt/python")

    def _build_core(self, output: Path) -> None:
        """Copy the package without what only people's machines run."""
        target = output / "python"
        packing.copy(packing.core(), packing.PACKAGE.parent, target)
        packing.add_bytecode(target, self._config.python, runs_in="/opt/python")


def runtime_of(config: Config) -> tuple[lambda_.Runtime, lambda_.Architecture]:
    """Return Lambda's runtime and processor for a deployment."""
    runtime = lambda_.Runtime(f"python{config.python}", lambda_.RuntimeFamily.PYTHON)
    arm = config.architecture == "arm64"
    return runtime, lambda_.Architecture.ARM_64 if arm else lambda_.Architecture.X86_64


def trim(target: Path) -> None:
    """Delete what no handler imports: tests, headers, stubs, scripts."""
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir() and path.name in TRIMMED_FOLDERS:
            shutil.rmtree(path)
        elif path.is_file() and path.suffix in TRIMMED_SUFFIXES:
            path.unlink()
