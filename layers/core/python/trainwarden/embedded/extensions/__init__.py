"""What MiniStack lacks, added inside its process: one module per extension.

They reach into internals of exactly one version, so ``install`` refuses any other.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

from trainwarden.embedded.settings import ServerSettings
from trainwarden.errors import ConfigError

MINISTACK_VERSION = "1.5.33"
NAMES = (
    "sagemaker",
    "step_functions",
    "cloudformation",
    "metrics",
    "outbox",
    "interpreters",
    "layers",
)


def check() -> None:
    """Look for the one version of MiniStack that is known.

    Raises:
        ConfigError: another version is installed, or none.
    """
    try:
        found = version("ministack")
    except PackageNotFoundError:
        found = "none"
    if found != MINISTACK_VERSION:
        raise ConfigError(
            f"ministack {MINISTACK_VERSION}",
            found,
            "install Trainwarden with its extra, trainwarden[embedded]",
        )


def install(settings: ServerSettings) -> None:
    """Add every extension to the MiniStack of this process.

    Raises:
        ConfigError: another version of MiniStack is installed, or none.
    """
    check()
    for name in NAMES:
        importlib.import_module(f"{__name__}.{name}").install(settings)
