"""CDK entry point: ``cdk deploy`` runs it. Needs no credentials, no container, no network."""

from __future__ import annotations

import sys

from aws_cdk import App

from infra import config, nag
from infra.stack import TrainwardenStack


def main() -> None:
    """Synthesize the stack that the context describes."""
    app = App()
    try:
        deployment = config.from_context(app.node.get_all_context())
    except config.ContextError as exc:
        sys.exit(str(exc))
    TrainwardenStack(app, "Trainwarden", config=deployment)
    nag.check(app)
    app.synth()


if __name__ == "__main__":
    main()
