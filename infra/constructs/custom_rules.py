"""Rules of the user's own: a function without permissions, and what others know of its rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import packing
from infra.constructs import bundling
from infra.constructs.function import Platform, PythonFunction, code_of
from infra.constructs.layers import runtime_of

PACKAGE = "custom_rules"
# Who asks has 30 s, and asks the rules one by one after they failed together.
TIMEOUT = Duration.seconds(8)
MEMORY_MB = 512


class CustomRules(Construct):
    """Runs the folder ``config.custom_rules``; its role may write its own log and nothing else.

    Attributes:
        function: The function.
        layer: The rules' names, parameters and needs, for functions that know but do not run them.
    """

    def __init__(self, scope: Construct, id_: str, *, platform: Platform) -> None:
        super().__init__(scope, id_)
        config, folder = platform.config, Path(platform.config.custom_rules)
        self.function = PythonFunction(
            self,
            "Handler",
            platform=platform,
            package=PACKAGE,
            timeout=TIMEOUT,
            memory_mb=MEMORY_MB,
            environment={},
            code=code_of(PACKAGE, config, folder),
            traced=False,
            reserved=config.custom_rules_concurrency,
        ).function
        digest = packing.digest(packing.custom_rules(folder), folder)
        described = json.dumps(packing.described(folder, digest)["rules"], sort_keys=True)
        runtime, architecture = runtime_of(config)
        self.layer = lambda_.LayerVersion(
            self,
            "Known",
            code=bundling.asset(folder, lambda output: _write(output, described), described),
            compatible_runtimes=[runtime],
            compatible_architectures=[architecture],
        )

    def known_to(self, platform: Platform) -> Platform:
        """Return the platform of functions that know the rules."""
        return replace(platform, layers=[*platform.layers, self.layer])

    def grant_ask(self, role: iam.IRole) -> None:
        """Allow to invoke this function, and no version or alias of it."""
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["lambda:InvokeFunction"], resources=[self.function.function_arn]
            )
        )


def _write(output: Path, described: str) -> None:
    package = output / "python" / "trainwarden_custom_rules"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", "utf-8")
    (package / "rules.json").write_text(described, "utf-8")
