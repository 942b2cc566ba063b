"""Turn sources into Lambda assets without Docker, once per content.

CDK skips a build whose asset lies in ``cdk.out`` already and all builds where nothing is deployed
(``cdk destroy``, ``cdk ls``), so a second synth costs only the hashing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

BUILD_VERSION = 4  # raise it when the way of building changes what comes out


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
