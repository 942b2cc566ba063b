"""What MiniStack lacks, added inside its process: one module per extension.

They reach into internals of exactly one version, so ``install`` refuses any other.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version

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


def install(settings: ServerSettings) -> None:
    """Add every extension to the MiniStack of this process.

    Raises:
        ConfigError: another version of MiniStack is installed.
    """
    found = version("ministack")
    if found != MINISTACK_VERSION:
        raise ConfigError(
            f"ministack {MINISTACK_VERSION}",
            f"ministack {found}",
            "install the extra: pip install 'trainwarden[embedded]'",
        )
    for name in NAMES:
        importlib.import_module(f"{__name__}.{name}").install(settings)
